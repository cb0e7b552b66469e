package transport

import (
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// watcher is the hook of the look-up lane's kgo client: whoever answers on a
// new connection may not be who answered on the old one.
type watcher struct{ c *Client }

func (w watcher) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, _ error) {
	w.c.versions.forget(meta.NodeID)
}

func (w watcher) OnBrokerDisconnect(meta kgo.BrokerMetadata, _ net.Conn) {
	w.c.versions.forget(meta.NodeID)
}

// forwarder is the one hook of every other lane. It passes what happens on
// connections to the user's hooks, but not that a kgo client was made or
// closed: metrics plugins register at that, and panic when they do it twice.
type forwarder struct {
	watcher
	connect    []kgo.HookBrokerConnect
	disconnect []kgo.HookBrokerDisconnect
	write      []kgo.HookBrokerWrite
	read       []kgo.HookBrokerRead
	e2e        []kgo.HookBrokerE2E
	throttle   []kgo.HookBrokerThrottle
}

func newForwarder(c *Client, hooks []kgo.Hook) *forwarder {
	f := &forwarder{watcher: watcher{c}}
	for _, h := range hooks {
		f.connect = pick(f.connect, h)
		f.disconnect = pick(f.disconnect, h)
		f.write = pick(f.write, h)
		f.read = pick(f.read, h)
		f.e2e = pick(f.e2e, h)
		f.throttle = pick(f.throttle, h)
	}
	return f
}

func pick[T any](to []T, h kgo.Hook) []T {
	if t, ok := h.(T); ok {
		return append(to, t)
	}
	return to
}

func (f *forwarder) OnBrokerConnect(meta kgo.BrokerMetadata, took time.Duration, conn net.Conn, err error) {
	f.watcher.OnBrokerConnect(meta, took, conn, err)
	for _, h := range f.connect {
		h.OnBrokerConnect(meta, took, conn, err)
	}
}

func (f *forwarder) OnBrokerDisconnect(meta kgo.BrokerMetadata, conn net.Conn) {
	f.watcher.OnBrokerDisconnect(meta, conn)
	for _, h := range f.disconnect {
		h.OnBrokerDisconnect(meta, conn)
	}
}

func (f *forwarder) OnBrokerWrite(meta kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	for _, h := range f.write {
		h.OnBrokerWrite(meta, key, n, wait, took, err)
	}
}

func (f *forwarder) OnBrokerRead(meta kgo.BrokerMetadata, key int16, n int, wait, took time.Duration, err error) {
	for _, h := range f.read {
		h.OnBrokerRead(meta, key, n, wait, took, err)
	}
}

func (f *forwarder) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	for _, h := range f.e2e {
		h.OnBrokerE2E(meta, key, e2e)
	}
}

func (f *forwarder) OnBrokerThrottle(meta kgo.BrokerMetadata, d time.Duration, after bool) {
	for _, h := range f.throttle {
		h.OnBrokerThrottle(meta, d, after)
	}
}

var (
	_ kgo.HookBrokerConnect    = (*forwarder)(nil)
	_ kgo.HookBrokerDisconnect = (*forwarder)(nil)
	_ kgo.HookBrokerWrite      = (*forwarder)(nil)
	_ kgo.HookBrokerRead       = (*forwarder)(nil)
	_ kgo.HookBrokerE2E        = (*forwarder)(nil)
	_ kgo.HookBrokerThrottle   = (*forwarder)(nil)
)
