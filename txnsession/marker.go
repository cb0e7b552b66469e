package txnsession

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
)

var (
	errNoWitness   = errors.New("no record of the transaction is known by which its marker could be found")
	errWitnessGone = errors.New("the witness is not there any more: what follows may belong to another transaction")
	errNoMarker    = errors.New("the witness's partition has no marker of the transaction up to its end")
)

const (
	markerFetchBytes = 1 << 20
	markerFetchWait  = 100 * time.Millisecond
	markerPatience   = time.Second
)

// findMarker looks for the first marker of the transaction's producer id after
// its witness. The epoch is not compared: the coordinator may have bumped it.
func (s *Session) findMarker(ctx context.Context, t *transaction) (Outcome, error) {
	s.mu.Lock()
	w, id, epoch := t.witness, t.ident.id, t.ident.epoch
	if w.Topic == "" {
		w = t.from.Witness
	}
	if t.from.TransactionalID != "" {
		id, epoch = t.from.ProducerID, t.from.ProducerEpoch
	}
	s.mu.Unlock()
	if w.Topic == "" {
		return Outcome{}, errNoWitness
	}
	offset, began, seen := w.Offset, time.Now(), false
	for {
		fp, next, err := s.fetchMarkers(ctx, w, offset)
		if err != nil {
			return Outcome{}, fmt.Errorf("reading the markers of %s partition %d from offset %d: %w", w.Topic, w.Partition, offset, err)
		}
		for _, r := range fp.Records {
			seen = seen || r.Offset == w.Offset && !r.Attrs.IsControl() && r.ProducerID == id && r.ProducerEpoch == epoch
			if !r.Attrs.IsControl() || r.ProducerID != id || r.Offset < w.Offset || len(r.Key) < 4 {
				continue
			}
			if !seen {
				return Outcome{}, errWitnessGone
			}
			out := Outcome{Aborted, Evidence{
				Source: "marker", Topic: w.Topic, Partition: w.Partition, Offset: r.Offset,
				ProducerEpoch: r.ProducerEpoch, Text: "the partition has an abort marker after the witness",
			}}
			switch binary.BigEndian.Uint16(r.Key[2:]) {
			case 0:
				return out, nil
			case 1:
				out.Verdict, out.Evidence.Text = Committed, "the partition has a commit marker after the witness"
				return out, nil
			}
		}
		if next <= offset || next >= fp.HighWatermark {
			// The markers of a transaction that has just ended follow within
			// moments. The next Fetch waits for what comes.
			if time.Since(began) > markerPatience || ctx.Err() != nil {
				return Outcome{}, errNoMarker
			}
		}
		offset = max(offset, next)
	}
}

// fetchMarkers reads one piece of the witness's partition, uncommitted and
// with control records, and returns the offset after it.
func (s *Session) fetchMarkers(ctx context.Context, w Witness, offset int64) (kgo.FetchPartition, int64, error) {
	var none kgo.FetchPartition
	info, err := s.witnessTopic(ctx, w.Topic)
	switch {
	case err != nil:
		return none, 0, err
	case int(w.Partition) >= len(info.Partitions) || w.Partition < 0:
		return none, 0, kerr.UnknownTopicOrPartition
	case w.TopicID != [16]byte{} && info.ID != [16]byte{} && w.TopicID != info.ID:
		return none, 0, fmt.Errorf("the topic was deleted and made again since: %w", kerr.InconsistentTopicID)
	}
	leader := info.Partitions[w.Partition].Leader
	call := transport.Call{
		Target:     transport.Node(leader),
		MaxVersion: 12, // the last that names topics by name
		New: func() kmsg.Request {
			req := kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(markerFetchWait/time.Millisecond), 1, markerFetchBytes
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic = w.Topic
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = w.Partition, offset, markerFetchBytes
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return req
		},
		Code: fetchCode,
		Give: func(r transport.Result) bool { return r.Class == transport.ClassRefresh },
	}
	res := s.tc.Lookup().Do(ctx, call)
	switch {
	case res.Class == transport.ClassRefresh:
		select { // the leader has moved
		case <-s.tc.RefreshTopics(w.Topic):
			return s.fetchMarkers(ctx, w, offset)
		case <-ctx.Done():
			return none, 0, context.Cause(ctx)
		}
	case res.Err != nil:
		return none, 0, res.Err
	}
	for _, rt := range res.Resp.(*kmsg.FetchResponse).Topics {
		for i := range rt.Partitions {
			fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
				KeepControlRecords: true, Offset: offset, IsolationLevel: kgo.ReadUncommitted(),
				Topic: w.Topic, Partition: w.Partition,
			}, &rt.Partitions[i], kgo.DefaultDecompressor(), nil)
			return fp, next, fp.Err
		}
	}
	return none, 0, errors.New("the broker's answer lacks the partition")
}

// witnessTopic waits for the topic while the retry table says that it may come,
// one that is not there for a limited time only.
func (s *Session) witnessTopic(ctx context.Context, name string) (*transport.Topic, error) {
	for began := time.Now(); ; {
		info, err := s.tc.Topic(ctx, name)
		if err != nil || info.Err == nil {
			return info, err
		}
		var ke *kerr.Error
		if !errors.As(info.Err, &ke) || !transport.Classify(keyMetadata, ke.Code).Retries() {
			return nil, info.Err
		}
		missing := ke.Code == kerr.UnknownTopicOrPartition.Code || ke.Code == kerr.UnknownTopicID.Code
		if missing && time.Since(began) > topicBound {
			return nil, info.Err
		}
	}
}

func fetchCode(r kmsg.Response) (int16, string) {
	resp := r.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode, ""
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			return rp.ErrorCode, ""
		}
	}
	return 0, ""
}
