package writer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// once answers the first n requests with r and the rest as usual.
func once(n int, r func(req *kmsg.ProduceRequest) *reply) func(int32, int, *kmsg.ProduceRequest) *reply {
	return func(_ int32, i int, req *kmsg.ProduceRequest) *reply {
		if i < n {
			return r(req)
		}
		return nil
	}
}

func code(c int16) func(*kmsg.ProduceRequest) *reply {
	return func(*kmsg.ProduceRequest) *reply { return &reply{code: c} }
}

// What a broker may answer to the first Produce, and what becomes of the record
// and its transaction.
func TestAnswers(t *testing.T) {
	lostErr := errors.New("connection reset")
	type want struct {
		err       error // nil: written
		maybeSent bool
		offset    bool
	}
	for name, tc := range map[string]struct {
		answer func(*kmsg.ProduceRequest) *reply
		want   want
	}{
		"success":                           {code(0), want{offset: true}},
		"duplicate, offset not given":       {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, code: 46, edit: base(-1)} }, want{}},
		"duplicate, offset 0 is not given":  {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, code: 46, edit: base(0)} }, want{}},
		"duplicate, offset given":           {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, code: 46, edit: base(5)} }, want{offset: true}},
		"not enough replicas":               {code(19), want{offset: true}},
		"not enough replicas, appended":     {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, code: 20} }, want{offset: true}},
		"timed out":                         {code(7), want{offset: true}},
		"timed out, appended":               {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, code: 7} }, want{offset: true}},
		"network exception":                 {code(13), want{offset: true}},
		"storage error":                     {code(56), want{offset: true}},
		"B38 concurrent transactions":       {code(51), want{offset: true}},
		"coordinator loading":               {code(14), want{offset: true}},
		"not leader":                        {code(6), want{offset: true}},
		"leader not available":              {code(5), want{offset: true}},
		"unknown topic once":                {code(3), want{offset: true}},
		"unknown topic id once":             {code(100), want{offset: true}},
		"fenced leader epoch":               {code(74), want{offset: true}},
		"answer lost, not appended":         {func(*kmsg.ProduceRequest) *reply { return &reply{err: lostErr} }, want{offset: true}},
		"answer lost, appended":             {func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, err: lostErr} }, want{offset: true}},
		"not a byte sent":                   {func(*kmsg.ProduceRequest) *reply { return &reply{err: lostErr, unsent: true} }, want{offset: true}},
		"partition missing in the answer":   {func(*kmsg.ProduceRequest) *reply { return &reply{noResp: true} }, want{offset: true}},
		"client closed":                     {func(*kmsg.ProduceRequest) *reply { return &reply{err: kgo.ErrClientClosed} }, want{err: kgo.ErrClientClosed, maybeSent: true}},
		"out of order although the oldest":  {code(45), want{err: kerr.OutOfOrderSequenceNumber}},
		"producer epoch":                    {code(47), want{err: kerr.InvalidProducerEpoch}},
		"invalid transaction state":         {code(48), want{err: kerr.InvalidTxnState}},
		"unknown producer":                  {code(59), want{err: kerr.UnknownProducerID}},
		"mapping":                           {code(49), want{err: kerr.InvalidProducerIDMapping}},
		"fenced":                            {code(90), want{err: kerr.ProducerFenced}},
		"transaction abortable":             {code(120), want{err: kerr.TransactionAbortable}},
		"topic authorization":               {code(29), want{err: kerr.TopicAuthorizationFailed}},
		"corrupt message":                   {code(2), want{err: kerr.CorruptMessage}},
		"invalid record":                    {code(87), want{err: kerr.InvalidRecord}},
		"unknown server error":              {code(-1), want{err: kerr.UnknownServerError, maybeSent: true}},
		"unsupported version":               {code(35), want{err: kerr.UnsupportedVersion}},
		"a code that nobody knows":          {code(999), want{err: kerr.UnknownServerError, maybeSent: true}},
		"a single record too large":         {code(10), want{err: kerr.MessageTooLarge}},
		"a single record larger than files": {code(18), want{err: kerr.MessageTooLarge}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lane.handle = once(1, tc.answer)
				tx := r.session.begin()
				var p promised
				r.produce(&p, 0, "a")
				err := r.session.commit(context.Background(), tx)
				if tc.want.err == nil {
					require.NoError(t, err)
					p.require(t, 1, nil)
					require.Equal(t, []string{"a"}, r.lane.values("t", 0), "once, and only once")
					require.Equal(t, tc.want.offset, p.records[0].Offset >= 0)
					require.Empty(t, tx.failures())
					return
				}
				require.ErrorIs(t, err, tc.want.err)
				p.require(t, 1, tc.want.err)
				require.EqualValues(t, -1, p.records[0].Offset)
				require.EqualValues(t, -1, p.records[0].ProducerID)
				require.Len(t, tx.failures(), 1)
				var e *txnsession.Error
				require.ErrorAs(t, tx.failures()[0], &e)
				require.Equal(t, tc.want.maybeSent, e.MaybeSent)
				require.ErrorAs(t, p.errs[0], &e)
				require.Equal(t, txnsession.StateAbortableError, e.State)
				require.NoError(t, r.session.abort(context.Background(), tx))
				// The next transaction works, from sequence 0.
				tx = r.session.begin()
				r.produce(&p, 0, "b")
				require.NoError(t, r.session.commit(context.Background(), tx))
				require.NoError(t, p.errs[1])
			})
		})
	}
}

func base(offset int64) func(*kmsg.ProduceResponse) {
	return func(resp *kmsg.ProduceResponse) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				resp.Topics[i].Partitions[j].BaseOffset = offset
			}
		}
	}
}

func TestBrokersOwnWordsAreInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply {
			return &reply{code: 87, edit: func(resp *kmsg.ProduceResponse) {
				p := &resp.Topics[0].Partitions[0]
				p.ErrorMessage = kmsg.StringPtr("one or more records have been rejected")
				er := kmsg.NewProduceResponseTopicPartitionErrorRecord()
				er.RelativeOffset, er.ErrorMessage = 3, kmsg.StringPtr("compacted topic cannot accept message without key")
				p.ErrorRecords = append(p.ErrorRecords, er)
			}}
		})
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		err := r.session.commit(context.Background(), tx)
		require.ErrorContains(t, err, "one or more records have been rejected")
		require.ErrorContains(t, err, "record 3")
		require.ErrorContains(t, err, "without key")
		require.ErrorContains(t, err, `partition 0 of topic "t"`)
	})
}

func TestLogAppendTimeIsTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply {
			return &reply{apply: true, edit: func(resp *kmsg.ProduceResponse) {
				resp.Topics[0].Partitions[0].LogAppendTime = 1_700_000_000_123
			}}
		})
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		require.NoError(t, r.session.commit(context.Background(), tx))
		require.Equal(t, int64(1_700_000_000_123), p.records[0].Timestamp.UnixMilli())
		require.EqualValues(t, 1, p.records[0].Attrs.TimestampType())
	})
}

// A retriable answer that never changes ends with RecordRetries.
func TestRecordRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.RecordRetries = 3 })
		r.lane.handle = once(100, code(7))
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		require.ErrorIs(t, r.session.commit(context.Background(), tx), kgo.ErrRecordRetries)
		p.require(t, 1, kgo.ErrRecordRetries)
		require.ErrorIs(t, p.errs[0], kerr.RequestTimedOut)
		require.Len(t, r.lane.sent(), 4)
	})
}

// To be overtaken is no retry of the batch's own.
func TestRecordRetriesDoNotCountOvertaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches, func(_ *rig, o *writer.Options) { o.RecordRetries = 1 })
		r.lane.delay = time.Millisecond
		r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
			if n == 8 || n == 14 { // a batch, and the one behind it when it comes again
				return &reply{code: 51}
			}
			return nil
		}
		tx := r.session.begin()
		var p promised
		want := numbered("v", 1000)
		r.produce(&p, 0, want...)
		require.NoError(t, r.session.commit(context.Background(), tx))
		require.Equal(t, want, r.lane.values("t", 0))
		sent := r.lane.sent()
		require.Equal(t, sent[9].batches[0].seq, sent[14].batches[0].seq)
	})
}

// Answers that ask for another try are not repeated without a pause.
func TestRetriesPause(t *testing.T) {
	for name, tc := range map[string]struct {
		code     int16
		least    time.Duration
		atMost   time.Duration
		attempts int
	}{
		"concurrent transactions are over soon": {51, 30 * time.Millisecond, 200 * time.Millisecond, 8},
		"the others take longer":                {7, 500 * time.Millisecond, 5 * time.Second, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lane.handle = once(tc.attempts, code(tc.code))
				begun := time.Now()
				tx := r.session.begin()
				var p promised
				r.produce(&p, 0, "a")
				require.NoError(t, r.session.commit(context.Background(), tx))
				took := time.Since(begun)
				require.GreaterOrEqual(t, took, tc.least)
				require.LessOrEqual(t, took, tc.atMost)
			})
		})
	}
}

// An answer is ambiguous for good: a definite one later does not clear it.
func TestAmbiguityStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
			switch n {
			case 0:
				return &reply{err: errors.New("connection reset")}
			case 1:
				return &reply{code: 19}
			}
			return &reply{code: 29}
		}
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		require.ErrorIs(t, r.session.commit(context.Background(), tx), kerr.TopicAuthorizationFailed)
		var e *txnsession.Error
		require.ErrorAs(t, tx.failures()[0], &e)
		require.True(t, e.MaybeSent)
		require.NoError(t, r.session.abort(context.Background(), tx))
		require.Len(t, tx.failures(), 2, "told again before the end that a Produce may arrive")
	})
}
