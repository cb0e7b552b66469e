package kafkatest

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed broker/pom.xml
var brokerPOM []byte

// installation is one release of Kafka in the cache.
type installation struct {
	java      string
	classpath string
	archive   string // class data archive, "" without one
}

// install brings a release into the cache.
func install(ctx context.Context, version string) (*installation, error) {
	java, javaSays, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := findMaven(); err != nil {
		return nil, err
	}
	name := "kafka-" + version + "-" + digest(brokerPOM)
	libs, err := cached(ctx, name, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "pom.xml"), brokerPOM, 0o644); err != nil {
			return err
		}
		args := []string{"dependency:copy-dependencies", "-DoutputDirectory=" + dir, "-Dkafka.version=" + version}
		if (Spec{Version: version}).atLeast(4, 0) {
			args = append(args, "-Pslf4j-simple")
		}
		return maven(ctx, dir, args...)
	})
	if err != nil {
		return nil, err
	}
	inst := &installation{java: java}
	if inst.classpath, err = classpath(libs); err != nil {
		return nil, err
	}
	cds, err := cached(ctx, name+"-cds-"+digest([]byte(javaSays), []byte(strings.Join(fastJVM, " "))), func(dir string) error {
		return inst.train(ctx, version, filepath.Join(dir, archiveName))
	})
	if ctx.Err() != nil {
		return nil, err
	}
	// Without an archive everything works, only slower.
	if err == nil {
		inst.archive = filepath.Join(cds, archiveName)
	}
	return inst, nil
}

const archiveName = "classes.jsa"

// train runs a broker once and dumps the classes that it loaded: a node starts
// in half the time from them.
func (inst *installation) train(ctx context.Context, version, archive string) error {
	spec := Latest()
	spec.Version = version
	c, err := launch(ctx, inst, spec, "-XX:ArchiveClassesAtExit="+archive, "-Xlog:disable")
	if err != nil {
		return err
	}
	defer c.Close()
	n := c.nodes[0]
	if err := terminate(n.process.Process); err != nil {
		return err
	}
	select {
	case <-n.process.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = os.Stat(archive)
	return err
}

// classpath lists the jars of a directory by name: a class archive is valid only
// for the classpath it was made with, and a wildcard has no order.
func classpath(dirs ...string) (string, error) {
	var all []string
	for _, dir := range dirs {
		jars, err := filepath.Glob(filepath.Join(dir, "*.jar"))
		if err != nil {
			return "", err
		}
		all = append(all, jars...)
	}
	return strings.Join(all, string(os.PathListSeparator)), nil
}

// fastJVM starts a short-lived Java fast, on few cores.
var fastJVM = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto"}

// command is a Java command line without the flags of a node.
func (inst *installation) command(mainClass string, args ...string) []string {
	flags := slices.Clone(fastJVM)
	if inst.archive != "" {
		flags = append(flags, "-XX:SharedArchiveFile="+inst.archive)
	}
	flags = append(flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", inst.classpath, mainClass)
	return append(flags, args...)
}
