package transport_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
)

var update = flag.Bool("update", false, "write docs/retries.md")

func TestRetriesDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "retries.md")
	want := renderRetries()
	if *update {
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "write it with: go test ./internal/transport -run TestRetriesDocument -update")
}

const retriesHead = `# What each answer means

This page is written by a test from the table that the code uses
(internal/transport/retryrows.go).

Requests are repeated until an answer decides or the caller's context ends.
Attempts are not counted.

| class | what follows |
|---|---|
| retriable | the same request again, after a wait |
| refresh | look up the coordinator or the leader, then the same request again |
| abortable | the transaction cannot commit any more; abort it and go on |
| denied | authorization was refused; nothing changed, and the call may be made again after the grant |
| fatal | the producer id is of no more use; a new session is needed |
| fenced | another owner has the transactional id, or the epoch moved on; for an end this says nothing about the outcome |
| unsupported | broker or version caps do not allow the request; nothing was applied |
| unknown | neither a retry nor a verdict follows; the caller looks further |

"Open" marks answers after which the request may have been applied all the
same. As long as one attempt is open, or has no answer, a later refusal is no
proof that nothing happened: a session says so and asks the broker.

Without an answer:

| what happened | sent | what follows |
|---|---|---|
| the context ended before the request was written | no | ends; nothing happened |
| the context ended after that | yes | ends; the outcome is open |
| no connection, or the write failed before the first byte | no | another broker, or the same again |
| the connection ended after the write | yes | the same again; open |
| TLS or SASL refused | no | ends as denied |
| the version negotiated is too low, or the broker has no such request | no | ends as unsupported |
| the client was closed | either | ends as fatal |

The wait after CONCURRENT_TRANSACTIONS is half a millisecond, doubling up to
kgo.ConcurrentTransactionsBackoff (default 20 ms), which InitProducerId waits
from the start. Every other wait is kgo.RetryBackoffFn's, at most 50 ms for the
first of its kind and 1 s for the others.
`

func renderRetries() []byte {
	var b bytes.Buffer
	b.WriteString(retriesHead)
	last := int16(-1)
	for _, r := range transport.Rows() {
		if r.Key != last {
			last = r.Key
			fmt.Fprintf(&b, "\n## %s (%d)\n\n| code | error | class | open | why |\n|---|---|---|---|---|\n", transport.KeyName(r.Key), r.Key)
		}
		code, name, open := fmt.Sprint(r.Code), kerr.TypedErrorForCode(r.Code), ""
		if r.Open {
			open = "open"
		}
		if r.Rest {
			fmt.Fprintf(&b, "| other | | %s | %s | %s |\n", r.Class, open, r.Reason)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code, name.Message, r.Class, open, r.Reason)
	}
	return b.Bytes()
}

func TestTableIsWellFormed(t *testing.T) {
	type place struct{ key, code int16 }
	seen := make(map[place]bool)
	rests := make(map[int16]int)
	used := make(map[transport.Class]bool)
	for _, r := range transport.Rows() {
		require.NotEmpty(t, r.Reason, "%+v", r)
		used[r.Class] = true
		if r.Rest {
			rests[r.Key]++
			continue
		}
		require.False(t, seen[place{r.Key, r.Code}], "two rows for key %d, code %d", r.Key, r.Code)
		seen[place{r.Key, r.Code}] = true
		require.Equal(t, r.Class, transport.Classify(r.Key, r.Code))
		require.NotEqual(t, "UNKNOWN_SERVER_ERROR", kerr.TypedErrorForCode(r.Code).Message+map[bool]string{true: "!"}[r.Code == -1], "no such code")
	}
	for key := range rests {
		require.Equal(t, 1, rests[key], "key %d", key)
		require.Equal(t, transport.ClassNone, transport.Classify(key, 0))
	}
	for _, key := range []kmsg.Key{
		kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.FindCoordinator, kmsg.ApiVersions,
		kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit,
		kmsg.DescribeProducers, kmsg.DescribeTransactions, kmsg.ListTransactions, 1083, 1093, 1095,
	} {
		require.Contains(t, rests, int16(key), "no rows for %s", key.Name())
	}
	for class := transport.ClassNone; class <= transport.ClassUnsupported; class++ {
		require.True(t, used[class], "no row is %s", class)
		require.NotEqual(t, "invalid", class.String())
	}
	require.Equal(t, "invalid", transport.Class(99).String())
}

// Whatever a broker answers gets a class.
func TestEveryCodeHasAClass(t *testing.T) {
	for _, key := range []int16{-1, 0, 1, 2, 3, 8, 10, 18, 22, 24, 25, 26, 28, 61, 65, 66, 76, 1083, 1093, 1095, math.MaxInt16} {
		for code := math.MinInt16; code <= math.MaxInt16; code++ {
			transport.Classify(key, int16(code))
		}
		for code := int16(-1); code < 140; code++ {
			class := transport.Classify(key, code)
			require.Equal(t, code == 0, class == transport.ClassNone && !(key == produce && code == kerr.DuplicateSequenceNumber.Code), "key %d, code %d", key, code)
		}
	}
}

func TestRulesOfTheTable(t *testing.T) {
	const (
		offsets  = int16(kmsg.TxnOffsetCommit)
		describe = int16(kmsg.DescribeTransactions)
	)
	for _, tc := range []struct {
		key   int16
		class transport.Class
		codes []*kerr.Error
	}{
		{endTxn, transport.ClassRetriable, []*kerr.Error{kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException}},
		{endTxn, transport.ClassRefresh, []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator}},
		{endTxn, transport.ClassAbortable, []*kerr.Error{kerr.InvalidTxnState, kerr.TransactionAbortable}},
		{endTxn, transport.ClassFenced, []*kerr.Error{kerr.InvalidProducerEpoch, kerr.ProducerFenced}},
		{endTxn, transport.ClassFatal, []*kerr.Error{kerr.InvalidProducerIDMapping}},
		{endTxn, transport.ClassDenied, []*kerr.Error{kerr.TransactionalIDAuthorizationFailed}},
		{endTxn, transport.ClassUnsupported, []*kerr.Error{kerr.UnsupportedVersion}},
		{endTxn, transport.ClassUnknown, []*kerr.Error{kerr.PolicyViolation}},
		{initProducerID, transport.ClassDenied, []*kerr.Error{kerr.TransactionalIDAuthorizationFailed}},
		{initProducerID, transport.ClassRetriable, []*kerr.Error{kerr.ConcurrentTransactions}},
		{initProducerID, transport.ClassFenced, []*kerr.Error{kerr.InvalidProducerEpoch, kerr.ProducerFenced}},
		{offsets, transport.ClassAbortable, []*kerr.Error{
			kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.StaleMemberEpoch, kerr.GroupIDNotFound,
			kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.TransactionAbortable, kerr.PolicyViolation,
		}},
		{offsets, transport.ClassRefresh, []*kerr.Error{kerr.UnknownTopicID}},
		{offsets, transport.ClassRetriable, []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.ConcurrentTransactions}},
		{offsets, transport.ClassFenced, []*kerr.Error{kerr.InvalidProducerEpoch, kerr.ProducerFenced}},
		{produce, transport.ClassNone, []*kerr.Error{kerr.DuplicateSequenceNumber}},
		{produce, transport.ClassRefresh, []*kerr.Error{kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}},
		{produce, transport.ClassRetriable, []*kerr.Error{
			kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NetworkException,
			kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.ConcurrentTransactions,
		}},
		{produce, transport.ClassAbortable, []*kerr.Error{
			kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.UnknownProducerID,
			kerr.TransactionAbortable, kerr.MessageTooLarge, kerr.InvalidRecord, kerr.CorruptMessage,
			kerr.TopicAuthorizationFailed, kerr.PolicyViolation, kerr.UnknownServerError,
		}},
		{produce, transport.ClassFatal, []*kerr.Error{kerr.InvalidProducerIDMapping}},
		{produce, transport.ClassFenced, []*kerr.Error{kerr.ProducerFenced}},
		{describe, transport.ClassUnknown, []*kerr.Error{kerr.TransactionalIDNotFound}},
		{int16(kmsg.ShareGroupHeartbeat), transport.ClassRefresh, []*kerr.Error{kerr.NotCoordinator}},
		{int16(kmsg.ShareGroupHeartbeat), transport.ClassRetriable, []*kerr.Error{kerr.CoordinatorLoadInProgress}},
		{int16(kmsg.ShareGroupHeartbeat), transport.ClassUnsupported, []*kerr.Error{kerr.UnsupportedVersion}},
		{int16(kmsg.ShareGroupHeartbeat), transport.ClassUnknown, []*kerr.Error{kerr.UnknownMemberID}},
	} {
		for _, c := range tc.codes {
			require.Equal(t, tc.class, transport.Classify(tc.key, c.Code), "%s of %s", c.Message, kmsg.NameForKey(tc.key))
		}
	}
}
