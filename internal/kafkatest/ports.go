package kafkatest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// nodePorts are the ports of one node.
type nodePorts struct{ client, nodes, controller int }

// Ports come from below the range out of which the kernel takes the local ports
// of outgoing connections. From that range a client that dials a dead node again
// and again takes, or even connects to, the very port that the node needs back.
const firstPort, lastPort = 20000, 32000

// pickPorts finds free ports for n nodes. Another process may still be faster:
// launch tries again then.
func pickPorts(n int) ([]nodePorts, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	var err error
	for tries := 0; len(held) < 3*n; tries++ {
		if tries == 1000 {
			return nil, fmt.Errorf("kafkatest: no free port: %w", err)
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			held = append(held, l)
		}
	}
	ports := make([]nodePorts, n)
	at := func(i int) int { return held[i].Addr().(*net.TCPAddr).Port }
	for i := range ports {
		ports[i] = nodePorts{at(3 * i), at(3*i + 1), at(3*i + 2)}
	}
	return ports, nil
}
