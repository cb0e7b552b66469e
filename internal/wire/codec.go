package wire

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrLeftOver is returned by ReadFrom if a message is longer than its layout:
// the peer speaks another one.
var ErrLeftOver = errors.New("wire: message is longer than its layout")

// appendTags appends what readTags has read; kmsg does not export its own.
func appendTags(dst []byte, tags *kmsg.Tags) []byte {
	dst = kbin.AppendUvarint(dst, uint32(tags.Len()))
	tags.Each(func(key uint32, val []byte) {
		dst = kbin.AppendUvarint(dst, key)
		dst = kbin.AppendUvarint(dst, uint32(len(val)))
		dst = append(dst, val...)
	})
	return dst
}

// finish reads the tags that end a flexible message and checks the whole.
func finish(b *kbin.Reader, tags *kmsg.Tags) error {
	*tags = kmsg.ReadTags(b)
	if err := b.Complete(); err != nil {
		return err
	}
	if len(b.Src) > 0 {
		return ErrLeftOver
	}
	return nil
}
