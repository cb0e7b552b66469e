package kafkatest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed java/pom.xml java/src
var ownJava embed.FS

// RunJava builds a Maven project, if this version of it was not built before, and
// runs one of its classes to the end: it answers what the program printed. project
// holds a pom.xml and src; nil is the project of this package, with OpenTxn and
// FlinkCommit. ctx bounds build and run, and its end kills both. A program that
// fails is an error with what it said. Without Java or Maven the error is a
// [*MissingError].
func RunJava(ctx context.Context, project fs.FS, mainClass string, args ...string) ([]byte, error) {
	return runJava(ctx, project, nil, mainClass, args)
}

func runJava(ctx context.Context, project fs.FS, flags []string, mainClass string, args []string) ([]byte, error) {
	if project == nil {
		sub, err := fs.Sub(ownJava, "java")
		if err != nil {
			return nil, err
		}
		project = sub
	}
	java, _, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := buildJava(ctx, project)
	if err != nil {
		return nil, err
	}
	libs, err := classpath(filepath.Join(dir, "libs"))
	if err != nil {
		return nil, err
	}
	command := append(slices.Clone(fastJVM), flags...)
	command = append(command, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(dir, "target", "classes")+string(os.PathListSeparator)+libs)
	command = append(command, mainClass)
	return run(ctx, "", java, append(command, args...)...)
}

// buildJava answers the directory of a built project, by the contents of its files.
func buildJava(ctx context.Context, project fs.FS) (string, error) {
	if _, err := findMaven(); err != nil {
		return "", err
	}
	var contents [][]byte
	err := fs.WalkDir(project, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(project, path)
		contents = append(contents, []byte(path), b)
		return err
	})
	if err != nil {
		return "", err
	}
	return cached(ctx, "java-"+digest(contents...), func(dir string) error {
		if err := os.CopyFS(dir, project); err != nil {
			return err
		}
		return maven(ctx, dir, "compile", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "libs"))
	})
}

// OpenTxn names a transaction that a producer left open.
type OpenTxn struct {
	TransactionalID string
	ProducerID      int64
	Epoch           int16
}

// JavaOpenTxn lets Java's producer begin a transaction, write n records ("java-0",
// "java-1", ...) and die without ending it.
func JavaOpenTxn(ctx context.Context, c *Cluster, transactionalID, topic string, n int) (OpenTxn, error) {
	out, err := c.runJava(ctx, "kafkatest.OpenTxn", transactionalID, topic, strconv.Itoa(n))
	if err != nil {
		return OpenTxn{}, err
	}
	var txn OpenTxn
	if _, err := fmt.Sscanf(string(out), "%s %d %d", &txn.TransactionalID, &txn.ProducerID, &txn.Epoch); err != nil {
		return OpenTxn{}, fmt.Errorf("kafkatest: OpenTxn printed %q: %w", out, err)
	}
	return txn, nil
}

// FlinkCommit commits an open transaction with the producer that Flink's committer
// uses.
func FlinkCommit(ctx context.Context, c *Cluster, txn OpenTxn) error {
	_, err := c.runJava(ctx, "kafkatest.FlinkCommit", txn.TransactionalID,
		strconv.FormatInt(txn.ProducerID, 10), strconv.Itoa(int(txn.Epoch)))
	return err
}

// JavaRead answers the values that Java's read_committed consumer sees in a topic
// now, partition by partition in order. Like [ReadCommitted] it waits for the
// markers of decided transactions.
func JavaRead(ctx context.Context, c *Cluster, topic string) ([]string, error) {
	if err := c.awaitDecided(ctx, topic); err != nil {
		return nil, err
	}
	out, err := c.runJava(ctx, "kafkatest.ReadCommitted", topic)
	return lines(out), err
}

// consoleWait is how long the console consumer waits for one more record before
// it takes the topic for read. It has no other way to end.
const consoleWait = 5 * time.Second

// ConsoleConsume answers the lines that the broker's own console consumer prints
// for a topic, read_committed and from the beginning. Order holds within a
// partition. It always takes some seconds: prefer [JavaRead].
func ConsoleConsume(ctx context.Context, c *Cluster, topic string) ([]string, error) {
	if err := c.awaitDecided(ctx, topic); err != nil {
		return nil, err
	}
	inst, err := install(ctx, c.spec.Version)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bootstrap-server", strings.Join(c.seeds, ","), "--topic", topic, "--from-beginning",
		"--isolation-level", "read_committed", "--timeout-ms", strconv.FormatInt(consoleWait.Milliseconds(), 10),
	}
	if c.sec != nil {
		file, remove, err := c.javaClientFile()
		if err != nil {
			return nil, err
		}
		defer remove()
		flag := "--consumer.config"
		if c.spec.atLeast(4, 2) {
			flag = "--command-config"
		}
		args = append(args, flag, file)
	}
	// It takes its own timeout for an error and says so in its log.
	out, err := run(ctx, "", inst.java, inst.command("org.apache.kafka.tools.consumer.ConsoleConsumer", args...)...)
	return lines(out), err
}

// lines parts what a program printed.
func lines(out []byte) []string {
	if len(out) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// runJava runs a program of this package with the cluster's addresses as its first
// argument.
func (c *Cluster) runJava(ctx context.Context, class string, args ...string) ([]byte, error) {
	args = append([]string{strings.Join(c.seeds, ",")}, args...)
	file, remove, err := c.javaClientFile()
	if err != nil {
		return nil, err
	}
	defer remove()
	return runJava(ctx, nil, []string{"-Dkafkatest.client=" + file}, class, args)
}

// JavaProperties is the properties file of a Java client that reaches the cluster
// as user: addresses, and with [Spec.Secure] TLS and SASL.
func (c *Cluster) JavaProperties(user string) string {
	var p properties
	p.set("bootstrap.servers", strings.Join(c.seeds, ","))
	if c.sec != nil {
		c.sec.javaProperties(&p, user)
	}
	return p.String()
}

// javaClientFile writes the super user's properties file.
func (c *Cluster) javaClientFile() (name string, remove func(), err error) {
	f, err := os.CreateTemp("", "kafkatest-*.properties")
	if err != nil {
		return "", nil, err
	}
	_, err = f.WriteString(c.JavaProperties(SuperUser))
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", nil, err
	}
	return f.Name(), func() { _ = os.Remove(f.Name()) }, nil
}
