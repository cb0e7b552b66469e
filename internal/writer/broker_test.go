package writer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeLog is a partition with its producer state.
type fakeLog struct {
	epoch   int16
	next    int32
	started bool
	records []kmsg.Record
	values  []string
	recent  []sentBatch
	offsets []int64
	maxSize int
	largest int
	times   []int64
}

// recreate makes a topic anew: its partitions are empty and know no producer.
func (l *fakeLane) recreate(topic string, old, id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, old)
	l.names[id] = topic
	for p := range int32(16) {
		delete(l.logs, fmt.Sprintf("%s/%d", topic, p))
	}
}

func (l *fakeLane) log(topic string, p int32) *fakeLog {
	key := fmt.Sprintf("%s/%d", topic, p)
	lg := l.logs[key]
	if lg == nil {
		lg = &fakeLog{}
		l.logs[key] = lg
	}
	return lg
}

func (l *fakeLane) answer(node int32, req *kmsg.ProduceRequest, r *reply) *kmsg.ProduceResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	if r.noResp {
		return resp
	}
	if req.Acks != -1 || req.TransactionID == nil || *req.TransactionID == "" {
		l.faults = append(l.faults, errors.New("acks or transactional id are wrong"))
	}
	for i := range req.Topics {
		rt := &req.Topics[i]
		at := kmsg.NewProduceResponseTopic()
		at.Topic, at.TopicID = rt.Topic, rt.TopicID
		name, known := l.topicName(req.Version, rt)
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			ap := kmsg.NewProduceResponseTopicPartition()
			ap.Partition, ap.BaseOffset, ap.LogAppendTime = rp.Partition, -1, -1
			ap.ErrorCode = r.code
			if r.codes != nil {
				ap.ErrorCode = r.codes(name, rp.Partition)
			}
			switch {
			case ap.ErrorCode != 0 && !r.apply:
			case !known:
				ap.ErrorCode = kerr.UnknownTopicID.Code
			case l.leader != nil && l.leader(name, rp.Partition) != node:
				ap.ErrorCode = kerr.NotLeaderForPartition.Code
			default:
				ap.ErrorCode, ap.BaseOffset = l.append(name, rp)
				if r.code != 0 {
					ap.ErrorCode = r.code
				}
			}
			at.Partitions = append(at.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// append checks epoch and sequence as a partition leader does.
func (l *fakeLane) append(topic string, rp *kmsg.ProduceRequestTopicPartition) (int16, int64) {
	b, err := readBatch(rp.Records)
	if err != nil {
		return kerr.CorruptMessage.Code, -1
	}
	lg := l.log(topic, rp.Partition)
	if lg.maxSize > 0 && len(rp.Records) > lg.maxSize {
		return kerr.MessageTooLarge.Code, -1
	}
	if lg.started && b.ProducerEpoch < lg.epoch {
		l.faults = append(l.faults, fmt.Errorf("%s/%d: a batch of epoch %d after %d", topic, rp.Partition, b.ProducerEpoch, lg.epoch))
		return kerr.InvalidProducerEpoch.Code, -1
	}
	if !lg.started || b.ProducerEpoch > lg.epoch {
		if b.FirstSequence != 0 && lg.started {
			return kerr.OutOfOrderSequenceNumber.Code, -1
		}
		lg.started, lg.epoch, lg.next, lg.recent, lg.offsets = true, b.ProducerEpoch, b.FirstSequence, nil, nil
	}
	for i, old := range lg.recent {
		if old.seq == b.FirstSequence && old.n == int(b.NumRecords) {
			return 0, lg.offsets[i]
		}
	}
	if b.FirstSequence != lg.next {
		return kerr.OutOfOrderSequenceNumber.Code, -1
	}
	base := int64(len(lg.values))
	lg.largest = max(lg.largest, len(rp.Records))
	for _, r := range readRecords(b) {
		lg.records = append(lg.records, r)
		lg.values = append(lg.values, string(r.Value))
		lg.times = append(lg.times, b.FirstTimestamp+r.TimestampDelta64)
	}
	lg.next = int32((int64(lg.next) + int64(b.NumRecords)) % (1 << 31))
	lg.recent = append(lg.recent, sentBatch{seq: b.FirstSequence, n: int(b.NumRecords)})
	lg.offsets = append(lg.offsets, base)
	if len(lg.recent) > 5 {
		lg.recent, lg.offsets = lg.recent[1:], lg.offsets[1:]
	}
	return 0, base
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readBatch decodes a batch's header and checks what can be checked of it.
func readBatch(raw []byte) (kmsg.RecordBatch, error) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		return b, fmt.Errorf("unreadable batch: %w", err)
	}
	switch {
	case int(b.Length) != len(raw)-12:
		return b, fmt.Errorf("batch length %d of %d bytes", b.Length, len(raw))
	case b.Magic != 2:
		return b, fmt.Errorf("magic %d", b.Magic)
	case uint32(b.CRC) != crc32.Checksum(raw[21:], castagnoli):
		return b, errors.New("the checksum is wrong")
	case b.Attributes&0x10 == 0:
		return b, errors.New("the batch is not transactional")
	case b.LastOffsetDelta != b.NumRecords-1:
		return b, fmt.Errorf("last offset delta %d of %d records", b.LastOffsetDelta, b.NumRecords)
	}
	recs := readRecords(b)
	if len(recs) != int(b.NumRecords) {
		return b, fmt.Errorf("%d records instead of %d", len(recs), b.NumRecords)
	}
	last := b.FirstTimestamp
	for _, r := range recs {
		last = max(last, b.FirstTimestamp+r.TimestampDelta64)
	}
	if b.MaxTimestamp != last {
		return b, fmt.Errorf("the largest timestamp is %d, not %d", last, b.MaxTimestamp)
	}
	return b, nil
}

func readRecords(b kmsg.RecordBatch) []kmsg.Record {
	raw := b.Records
	raw, err := kgo.DefaultDecompressor().Decompress(raw, kgo.CompressionCodecType(b.Attributes&7))
	if err != nil {
		return nil
	}
	var out []kmsg.Record
	for r := bytes.NewReader(raw); r.Len() > 0; {
		n, err := binary.ReadVarint(r)
		if err != nil {
			return nil
		}
		at := len(raw) - r.Len()
		if _, err := r.Seek(n, io.SeekCurrent); err != nil {
			return nil
		}
		var rec kmsg.Record
		length := binary.AppendVarint(nil, n)
		if err := rec.ReadFrom(append(length, raw[at:at+int(n)]...)); err != nil {
			return nil
		}
		out = append(out, rec)
	}
	return out
}
