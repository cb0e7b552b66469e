package producer

import (
	"fmt"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// TooLargeError is the error of a record that is too large. It unwraps to
// kerr.MessageTooLarge, and the record's transaction has failed.
//
// Topic is the record's. Size is the length in bytes of a batch of this record
// alone: before compression if it exceeds a limit of the producer's, so that
// nothing was sent, and as sent if a broker refused it. Limit is what it
// exceeds: ProducerBatchMaxBytes, or MaxBufferedBytes (of which a record counts
// its key, value and headers); it is 0 if the broker refused the record, which
// does not tell its limit.
type TooLargeError = writer.TooLargeError

// OptionError is the error of New and NewTransactional for an option that a
// producer of a session cannot honour.
type OptionError struct {
	Option string // its name in kgo
	Reason string
}

// Error names the option and says why it is refused.
func (e *OptionError) Error() string { return fmt.Sprintf("kgo.%s: %s", e.Option, e.Reason) }

// refused is the error of a call that was refused without having done anything.
func refused(op string, s *txnsession.Session, err error) error {
	e := &txnsession.Error{Op: op, Err: err}
	if s != nil {
		e.State = s.State()
	}
	return e
}
