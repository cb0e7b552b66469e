package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// errEnded is the end of a node that was asked to end.
var errEnded = errors.New("it ended")

// node is one broker and controller of a local cluster.
type node struct {
	id    int
	ports nodePorts
	dir   string
	args  []string // of java

	mu      sync.Mutex // guards what follows
	process *process   // nil before the first start
	paused  bool
	closed  bool // it never starts again
}

func (n *node) addr() string   { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.ports.client)) }
func (n *node) log() string    { return filepath.Join(n.dir, "broker.log") }
func (n *node) config() string { return filepath.Join(n.dir, "server.properties") }
func (n *node) data() string   { return filepath.Join(n.dir, "data") }

// newNode writes a node's directory and makes its command line.
func newNode(inst *installation, spec Spec, id int, ports []nodePorts, dir string, sec *security, jvm []string) (*node, error) {
	n := &node{id: id, ports: ports[id-1], dir: filepath.Join(dir, "node"+strconv.Itoa(id))}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.config(), []byte(serverProperties(spec, id, ports, n.data(), sec)), 0o600); err != nil {
		return nil, err
	}
	if spec.JVM != "" {
		n.args = append(n.args, strings.Fields(spec.JVM)...)
	} else {
		n.args = append(n.args, fmt.Sprintf("-Xmx%dm", spec.heap()))
		n.args = append(n.args, fastJVM...)
		if inst.archive != "" {
			n.args = append(n.args, "-XX:SharedArchiveFile="+inst.archive)
		}
	}
	n.args = append(n.args, jvm...)
	if spec.atLeast(4, 0) {
		n.args = append(n.args, simpleLogger...)
	} else {
		file := filepath.Join(n.dir, "log4j.properties")
		if err := os.WriteFile(file, []byte(log4jProperties), 0o600); err != nil {
			return nil, err
		}
		n.args = append(n.args, "-Dlog4j.configuration=file:"+file)
	}
	n.args = append(n.args, "-cp", inst.classpath, "kafka.Kafka", n.config())
	return n, nil
}

// format prepares the node's data directory.
func (n *node) format(ctx context.Context, inst *installation, spec Spec, clusterID string, sec *security) error {
	args := []string{"format", "-t", clusterID, "-c", n.config()}
	for _, f := range spec.features() {
		args = append(args, "--feature", f)
	}
	if sec != nil {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", scramName, SuperUser, sec.password(SuperUser)))
	}
	_, err := run(ctx, n.dir, inst.java, inst.command("kafka.tools.StorageTool", args...)...)
	return err
}

// start runs the node; its log goes on where it was.
func (n *node) start(java string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	if n.process != nil {
		select {
		case <-n.process.exited:
		default:
			return fmt.Errorf("kafkatest: node %d is running", n.id)
		}
	}
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(java, n.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	p, err := start(cmd)
	if err != nil {
		return fmt.Errorf("kafkatest: node %d: %w", n.id, err)
	}
	n.process, n.paused = p, false
	return nil
}

// close ends the node for good.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	if p, err := n.running(); err == nil {
		p.kill()
	}
}

// running answers the node's process, or an error if it has none that lives.
func (n *node) running() (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil, fmt.Errorf("kafkatest: node %d is not running", n.id)
	}
	select {
	case <-n.process.exited:
		return nil, fmt.Errorf("kafkatest: node %d is not running: %w", n.id, cmp.Or(n.process.err, errEnded))
	default:
		return n.process, nil
	}
}

// signal pauses or resumes the node.
func (n *node) signal(send func(*os.Process) error, paused bool) error {
	p, err := n.running()
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := send(p.Process); err != nil {
		return fmt.Errorf("kafkatest: node %d: %w", n.id, err)
	}
	n.paused = paused
	return nil
}

// reachable tells whether the node lives and is not stopped.
func (n *node) reachable() bool {
	_, err := n.running()
	n.mu.Lock()
	defer n.mu.Unlock()
	return err == nil && !n.paused
}

// failure adds the end of the node's log to err.
func (n *node) failure(err error) error {
	return errors.Join(fmt.Errorf("kafkatest: node %d: %w", n.id, err), errors.New(n.logTail(30)))
}

// logTail is the end of the node's log, and the first error before that, which
// what follows it often hides.
func (n *node) logTail(lines int) string {
	b, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	log := string(b)
	end := tail(log, lines)
	before := strings.TrimSuffix(strings.TrimRight(log, "\n"), end)
	first := ""
	if i := strings.Index(before, " ERROR "); i >= 0 {
		i = strings.LastIndexByte(before[:i], '\n') + 1
		first = strings.Join(strings.SplitN(before[i:], "\n", 11)[:min(10, strings.Count(before[i:], "\n"))], "\n") + "\n...\n"
	}
	return fmt.Sprintf("node %d logged:\n%s%s", n.id, first, end)
}
