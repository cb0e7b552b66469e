package kafkatest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// MissingError says that a program which the broker needs is not there. Tests
// that need the broker skip on it.
type MissingError struct {
	// Tool is the program: "java", "mvn".
	Tool string
	// Reason says what is wrong with it.
	Reason string
}

// Error says what is missing.
func (e *MissingError) Error() string {
	return fmt.Sprintf("kafkatest: a real broker needs %s: %s", e.Tool, e.Reason)
}

// Available answers nil when the programs that a broker needs are there, and a
// [*MissingError] when one is not.
func Available(ctx context.Context) error {
	if _, _, err := findJava(ctx); err != nil {
		return err
	}
	_, err := findMaven()
	return err
}

var javaVersion = regexp.MustCompile(`^\S+ (\d+)`)

// findJava answers the path of Java 17 or newer, and what it says of itself.
func findJava(ctx context.Context) (path, version string, err error) {
	path, err = exec.LookPath("java")
	if err != nil {
		return "", "", &MissingError{Tool: "java", Reason: "Java 17 or newer is not on the PATH"}
	}
	out, err := run(ctx, "", path, "--version")
	switch m := javaVersion.FindSubmatch(out); {
	case ctx.Err() != nil:
		return "", "", err
	case err != nil || m == nil:
		// Java 8 does not know the flag.
		return "", "", &MissingError{Tool: "java", Reason: path + " does not tell its version, 17 or newer is needed"}
	default:
		if major, _ := strconv.Atoi(string(m[1])); major < 17 {
			return "", "", &MissingError{Tool: "java", Reason: path + " is Java " + string(m[1]) + ", 17 or newer is needed"}
		}
	}
	return path, string(out), nil
}

// maven runs Maven in a directory. One at a time: they share a local repository.
func maven(ctx context.Context, dir string, args ...string) error {
	mvn, err := findMaven()
	if err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	held, err := lock(ctx, filepath.Join(cache, "maven.lock"))
	if err != nil {
		return err
	}
	defer held.Close()
	_, err = run(ctx, dir, mvn, append([]string{"-B", "-q", "-Dstyle.color=never"}, args...)...)
	return err
}

func findMaven() (string, error) {
	path, err := exec.LookPath("mvn")
	if err != nil {
		return "", &MissingError{Tool: "mvn", Reason: "Maven is not on the PATH"}
	}
	return path, nil
}
