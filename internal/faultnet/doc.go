// Package faultnet is a network for tests that breaks on command and remembers
// what was sent over it.
//
// A [Net] is given to a Kafka client as its dialer. It speaks the protocol's
// framing, so a fault is aimed at a request (the second EndTxn, any Produce to
// node 1), not at a byte or at a moment, and every request that the client
// wrote is kept in a log:
//
//	nw := faultnet.New()
//	defer nw.Close()
//	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.Dialer(nw.Dial))
//
//	cut := nw.Inject(faultnet.Fault{
//		Key:    int16(kmsg.EndTxn),
//		Node:   faultnet.Any,
//		Action: faultnet.CutAfter,
//	})
//	// ... the next EndTxn is applied by the broker and its answer lost ...
//	require.Equal(t, 1, cut.Hits())
//
// It stands on the client's side of the wire. The brokers, their listeners and
// the addresses they advertise stay as they are, so the same test runs against
// an embedded cluster and against a Kafka of several nodes. With [WithTLS] the
// network speaks TLS to the broker itself and still sees plain frames.
//
// # Faults
//
// [Fault] says which requests are meant, [Action] what happens to them, and
// [Injection] counts how often it did: a test that injects a fault asserts its
// hits, or it proves nothing. What an action promises about the effect:
//
//	Refuse        the write fails, the broker saw nothing
//	CutBefore     the write succeeds, the connection breaks, the broker saw nothing
//	CutAfter      the connection breaks once the broker's answer has arrived
//	CutLate       the connection breaks, the request arrives at the broker later
//	Delay         the answer is held
//	DelayRequest  the request is held
//	Duplicate     the broker sees the request twice, the client one answer
//	Answer        the broker saw nothing, the client reads an error code
//	AnswerAfter   the broker answered, the client reads an error code instead
//	Rewrite       the broker's own answer, edited
//
// To the client CutBefore, CutAfter and CutLate look the same. A cut takes the
// other requests in flight on that connection with it, as a real one does.
//
// Whole brokers: [Net.Down] refuses and closes, [Net.Blackhole] accepts bytes
// and moves none.
//
// # Order and cost
//
// Answers keep the order of their requests, also those the network makes
// itself: what is behind a held one waits. Without a fault in place, bytes go
// through as they are, read and written in the caller's own goroutine; only
// frame headers are looked at. Bodies are copied for the log, those of Produce,
// Fetch and ShareFetch only when [WithDataBodies] asks for it.
//
// # Limits
//
// The log keeps every request until [Net.Reset], about 400 bytes each and the
// kept bodies.
//
// A stream that is not made of Kafka frames (SaslHandshake v0 and its raw
// tokens, garbage) passes untouched and unrecorded from the first byte that
// cannot be a frame. Produce with acks 0 has no answer: CutAfter then cuts
// after the write, and Answer only swallows the request.
package faultnet
