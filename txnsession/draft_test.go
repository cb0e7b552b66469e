package txnsession_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/wire"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// draft makes the network announce what no released broker has (KIP-939 keep
// prepared, KIP-1309), and answer it: InitProducerId v6 and v7 with next and
// ongoing, TxnHeartbeat with a code.
type draft struct {
	k *kit

	mu            sync.Mutex
	next, ongoing [2]int64 // producer id and epoch
	inits         []*wire.InitProducerIDRequest
	beat          int16
}

func (k *kit) draft(id string) *draft {
	k.t.Helper()
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr(k.id(id)), 60_000
	resp, err := init.RequestWith(k.ctx(10*time.Second), k.raw)
	require.NoError(k.t, err)
	d := &draft{k: k, next: [2]int64{resp.ProducerID, int64(resp.ProducerEpoch)}, ongoing: [2]int64{-1, -1}}
	k.net.RegisterRequest(func() kmsg.Request { return wire.NewInitProducerIDRequest() })
	k.net.RegisterRequest(func() kmsg.Request { return wire.NewTxnHeartbeatRequest() })
	k.net.Inject(faultnet.Fault{Key: int16(kmsg.ApiVersions), Node: faultnet.Any, Times: forever, Action: faultnet.Rewrite, Edit: func(_ kmsg.Request, r kmsg.Response) {
		v := r.(*kmsg.ApiVersionsResponse)
		for i := range v.ApiKeys {
			if v.ApiKeys[i].ApiKey == int16(kmsg.InitProducerID) {
				v.ApiKeys[i].MaxVersion = 7
			}
		}
		beat := kmsg.NewApiVersionsResponseApiKey()
		beat.ApiKey = wire.TxnHeartbeatKey
		v.ApiKeys = append(v.ApiKeys, beat)
		v.FinalizedFeaturesEpoch = max(v.FinalizedFeaturesEpoch, 1)
		for _, name := range []string{"ktxn.txn.2pc", "ktxn.txn.heartbeat"} {
			f := kmsg.NewApiVersionsResponseFinalizedFeature()
			f.Name, f.MaxVersionLevel, f.MinVersionLevel = name, 1, 1
			v.FinalizedFeatures = append(v.FinalizedFeatures, f)
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MaxVersion = name, 1
			v.SupportedFeatures = append(v.SupportedFeatures, s)
		}
	}})
	k.net.Inject(faultnet.Fault{Key: int16(kmsg.InitProducerID), Node: faultnet.Any, Times: forever, Action: faultnet.Answer,
		Match: func(r faultnet.Request) bool { return r.Version >= 6 },
		Edit: func(q kmsg.Request, r kmsg.Response) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.inits = append(d.inits, q.(*wire.InitProducerIDRequest))
			a := r.(*wire.InitProducerIDResponse)
			a.ErrorCode = 0
			a.ProducerID, a.ProducerEpoch = d.next[0], int16(d.next[1])
			a.OngoingTxnProducerID, a.OngoingTxnProducerEpoch = d.ongoing[0], int16(d.ongoing[1])
		}})
	k.net.Inject(faultnet.Fault{Key: wire.TxnHeartbeatKey, Node: faultnet.Any, Times: forever, Action: faultnet.Answer,
		Edit: func(_ kmsg.Request, r kmsg.Response) {
			d.mu.Lock()
			defer d.mu.Unlock()
			r.(*wire.TxnHeartbeatResponse).ErrorCode = d.beat
		}})
	return d
}

func (d *draft) setBeat(code *kerr.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beat = code.Code
}

func (d *draft) beats() int { return d.k.net.Requests(wire.TxnHeartbeatKey) }

func (d *draft) last() *wire.InitProducerIDRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inits[len(d.inits)-1]
}

// B24, KIP-939: recovery keeps the prepared transaction and completes it.
func TestB24_KeepPrepared(t *testing.T) {
	stored := txnsession.PreparedTxn{TransactionalID: "id", ProducerID: 41, ProducerEpoch: 3, TransactionVersion: 2}
	for _, c := range []struct {
		name    string
		ongoing [2]int64
		want    txnsession.Verdict
		ends    []bool // commit or abort, as sent
	}{
		{"the stored one", [2]int64{41, 3}, txnsession.Committed, []bool{true}},
		{"another", [2]int64{41, 4}, txnsession.Aborted, []bool{false}},
		{"none", [2]int64{-1, -1}, txnsession.Unknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t)
			d := k.draft("id")
			d.ongoing = c.ongoing
			var ends []bool
			k.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Times: forever, Action: faultnet.Answer, Edit: func(q kmsg.Request, r kmsg.Response) {
				req, resp := q.(*kmsg.EndTxnRequest), r.(*kmsg.EndTxnResponse)
				ends = append(ends, req.Commit)
				resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = 0, req.ProducerID, req.ProducerEpoch+1
				if req.ProducerID != d.next[0] || req.ProducerEpoch != int16(d.next[1]) {
					resp.ErrorCode = kerr.ProducerFenced.Code // the old pair
				}
			}})
			s := k.session("id", txnsession.TwoPhaseCommit())
			require.NoError(t, s.InitializeKeepPrepared(k.ctx(10*time.Second)))
			require.True(t, d.last().KeepPreparedTxn)
			require.True(t, d.last().Enable2Pc)
			if c.ends == nil {
				require.Equal(t, txnsession.StateReady, s.State())
			} else {
				require.Equal(t, txnsession.StatePrepared, s.State())
			}
			for range 2 { // twice is a success both times
				v, err := s.Complete(k.ctx(10*time.Second), stored)
				require.NoError(t, err)
				if c.want != txnsession.Aborted {
					require.Equal(t, c.want, v)
				}
				require.Equal(t, txnsession.StateReady, s.State())
			}
			require.Equal(t, c.ends, ends)
			_, err := s.Complete(k.ctx(time.Second), txnsession.PreparedTxn{TransactionalID: "other"})
			require.Error(t, err)
		})
	}
}

// A killed connection between EndTxn and its answer leaves the question open,
// and a two-phase transaction's is not initialised away.
func TestUnresolvedTwoPhase(t *testing.T) {
	k := newKit(t)
	d := k.draft("id")
	d.ongoing = [2]int64{41, 3}
	s := k.session("id", txnsession.TwoPhaseCommit())
	require.NoError(t, s.InitializeKeepPrepared(k.ctx(10*time.Second)))
	k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
	stored := txnsession.PreparedTxn{TransactionalID: "id", ProducerID: 41, ProducerEpoch: 3}
	_, err := s.Complete(k.ctx(100*time.Millisecond), stored)
	require.True(t, txnsession.IsOutcomeUnknown(err), err)
	require.ErrorIs(t, s.Initialize(k.ctx(time.Second)), txnsession.ErrState)
	// The same direction again, also by Complete.
	_, err = s.Complete(k.ctx(100*time.Millisecond), stored)
	require.True(t, txnsession.IsOutcomeUnknown(err), err)
	require.Equal(t, txnsession.StateCommitting, s.State())
}

func TestComplete(t *testing.T) {
	k := newKit(t)
	s, p := k.prepared("id", "r")
	v, err := s.Complete(k.ctx(10*time.Second), p)
	require.NoError(t, err)
	require.Equal(t, txnsession.Committed, v)
	require.Equal(t, []string{"r"}, k.committed(0))
	v, err = s.Complete(k.ctx(10*time.Second), p)
	require.NoError(t, err)
	require.Equal(t, txnsession.Committed, v, "what is known of it")

	_, p2 := k.prepared("id2", "x")
	r := k.resume(p2)
	other := p2
	other.ProducerEpoch++
	v, err = r.Complete(k.ctx(10*time.Second), other)
	require.NoError(t, err)
	require.Equal(t, txnsession.Aborted, v)
	require.Equal(t, txnsession.StateClosed, r.State())
	v, err = r.Complete(k.ctx(10*time.Second), p2)
	require.NoError(t, err)
	require.Equal(t, txnsession.Aborted, v)
	require.Equal(t, []string{"r"}, k.committed(0))
	_, err = k.session("id3").Complete(k.ctx(time.Second), txnsession.PreparedTxn{TransactionalID: "id3"})
	require.ErrorIs(t, err, txnsession.ErrState)
}

func TestHeartbeats(t *testing.T) {
	k := newKit(t)
	d := k.draft("id")
	s := k.session("id", txnsession.TransactionSessionTimeout(600*time.Millisecond), txnsession.RequireHeartbeat())
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	require.Equal(t, int32(600), d.last().TransactionSessionTimeoutMillis)
	require.Zero(t, d.beats())
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	w := k.writer(s)
	require.NoError(t, w.write(0, "r"))
	require.Eventually(t, func() bool { return d.beats() >= 3 }, 10*time.Second, time.Millisecond, "beats while the transaction is open")
	_, err := s.Prepare(k.ctx(10 * time.Second))
	require.NoError(t, err)
	n := d.beats()
	require.Eventually(t, func() bool { return d.beats() >= n+2 }, 10*time.Second, time.Millisecond, "beats while it is prepared")
	require.NoError(t, s.Heartbeat(k.ctx(10*time.Second)))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.ErrorIs(t, s.Heartbeat(k.ctx(time.Second)), txnsession.ErrState)
	require.Equal(t, []string{"r"}, k.committed(0))

	// A fenced answer ends the session with that reason.
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	d.setBeat(kerr.ProducerFenced)
	require.Eventually(t, func() bool { return s.State() == txnsession.StateFatalError }, 10*time.Second, time.Millisecond, "the beat finds out")
	require.True(t, txnsession.IsFenced(s.Err()), s.Err())
	require.ErrorIs(t, s.Err(), kerr.ProducerFenced)
}

func TestHeartbeatByHand(t *testing.T) {
	k := newKit(t)
	d := k.draft("id")
	s, _ := k.open("id", "r")
	require.NoError(t, s.Heartbeat(k.ctx(10*time.Second)))
	require.Equal(t, 1, d.beats())
	d.setBeat(kerr.CoordinatorLoadInProgress)
	err := s.Heartbeat(k.ctx(50 * time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, txnsession.StateInTransaction, s.State())
	d.setBeat(kerr.InvalidProducerEpoch)
	require.True(t, txnsession.IsFenced(s.Heartbeat(k.ctx(10*time.Second))))
	require.Equal(t, txnsession.StateFatalError, s.State())
}

// misses counts heartbeats without an answer.
type misses struct {
	mu sync.Mutex
	n  int
}

func (m *misses) OnHeartbeatMiss(_ string, _ int, left time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left > 0 && err != nil {
		m.n++
	}
}

// Beats that never get through make the transaction abortable at the deadline,
// and every miss before it is told.
func TestHeartbeatDeadline(t *testing.T) {
	k := newKit(t)
	d := k.draft("id")
	seen := new(misses)
	k.nc = k.client(netclient.WithHooks(seen))
	s := k.session("id", txnsession.TransactionSessionTimeout(150*time.Millisecond))
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	d.setBeat(kerr.TransactionAbortable)
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Eventually(t, func() bool { return s.State() == txnsession.StateAbortableError }, 10*time.Second, time.Millisecond, "the answer says abort")
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	d.setBeat(kerr.UnknownServerError)
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Eventually(t, func() bool { return s.State() == txnsession.StateAbortableError }, 10*time.Second, time.Millisecond, "the deadline passes")
	require.True(t, txnsession.IsAbortable(s.Commit(k.ctx(time.Second))))
	seen.mu.Lock()
	require.Positive(t, seen.n, "misses before the deadline are told")
	seen.mu.Unlock()
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
}

// log keeps what is logged at warning level.
type log struct {
	mu   sync.Mutex
	said []string
}

func (*log) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l *log) Log(level kgo.LogLevel, msg string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if level <= kgo.LogLevelWarn {
		l.said = append(l.said, msg)
	}
}

// Without KIP-1309 the session says so once and goes on, unless it must not.
func TestHeartbeatsUnsupported(t *testing.T) {
	k := newKit(t)
	l := new(log)
	k.nc = k.client(kgo.WithLogger(l))
	s := k.session("id", txnsession.TransactionSessionTimeout(time.Second))
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	n := 0
	for _, m := range l.said {
		if strings.Contains(m, "KIP-1309") {
			n++
		}
	}
	require.Equal(t, 1, n, l.said)
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	err := s.Heartbeat(k.ctx(10 * time.Second))
	require.ErrorIs(t, err, txnsession.ErrHeartbeatUnsupported)
	require.True(t, txnsession.NeverSent(err), err)

	must := k.session("must", txnsession.TransactionSessionTimeout(time.Second), txnsession.RequireHeartbeat())
	err = must.Initialize(k.ctx(10 * time.Second))
	require.ErrorIs(t, err, txnsession.ErrHeartbeatUnsupported)
	require.Equal(t, txnsession.StateUninitialized, must.State())
}
