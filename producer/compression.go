package producer

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readCompression reads which compressor is to be used. One made from codecs is
// made anew, so that producers that name the same codecs agree.
func (set *settings) readCompression(cl *kgo.Client) error {
	o := &set.writer
	if c := value[kgo.Compressor](cl, kgo.WithCompressor, nil); c != unsetCompressor {
		o.Compressor = c
		if c != nil {
			return nil
		}
	}
	codecs := value[[]kgo.CompressionCodec](cl, kgo.ProducerBatchCompression, nil)
	o.Codecs = append(make([]kgo.CompressionCodec, 0, len(codecs)), codecs...)
	var err error
	o.Compressor, err = kgo.DefaultCompressor(slices.Clone(codecs)...) // it writes to its arguments
	return err
}
