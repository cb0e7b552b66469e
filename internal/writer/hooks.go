package writer

import "github.com/twmb/franz-go/pkg/kgo"

// hooks are the user's hooks that have to do with producing.
type hooks struct {
	onBuffered    []kgo.HookProduceRecordBuffered
	onPartitioned []kgo.HookProduceRecordPartitioned
	onUnbuffered  []kgo.HookProduceRecordUnbuffered
	onWritten     []kgo.HookProduceBatchWritten
}

func (h *hooks) add(hook kgo.Hook) {
	if hook, ok := hook.(kgo.HookProduceRecordBuffered); ok {
		h.onBuffered = append(h.onBuffered, hook)
	}
	if hook, ok := hook.(kgo.HookProduceRecordPartitioned); ok {
		h.onPartitioned = append(h.onPartitioned, hook)
	}
	if hook, ok := hook.(kgo.HookProduceRecordUnbuffered); ok {
		h.onUnbuffered = append(h.onUnbuffered, hook)
	}
	if hook, ok := hook.(kgo.HookProduceBatchWritten); ok {
		h.onWritten = append(h.onWritten, hook)
	}
}

func (h *hooks) buffered(r *kgo.Record) {
	for _, hook := range h.onBuffered {
		hook.OnProduceRecordBuffered(r)
	}
}

func (h *hooks) partitioned(r *kgo.Record, leader int32) {
	for _, hook := range h.onPartitioned {
		hook.OnProduceRecordPartitioned(r, leader)
	}
}

func (h *hooks) unbuffered(r *kgo.Record, err error) {
	for _, hook := range h.onUnbuffered {
		hook.OnProduceRecordUnbuffered(r, err)
	}
}

func (h *hooks) batchWritten(b *written) {
	for _, hook := range h.onWritten {
		hook.OnProduceBatchWritten(kgo.BrokerMetadata{NodeID: b.node}, b.topic, b.partition, b.metrics)
	}
}
