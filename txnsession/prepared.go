package txnsession

import (
	"database/sql/driver"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// PreparedTxn identifies a prepared transaction, for a committer in another
// process: store it with whatever decides the outcome. It is comparable; its
// text form is stable, and also what JSON and database/sql store.
type PreparedTxn struct {
	TransactionalID string
	ProducerID      int64
	ProducerEpoch   int16
	// TransactionVersion is the finalized transaction.version that the
	// transaction ran under; -1 if that is not known (see
	// [ParsePreparedState]).
	TransactionVersion int16
	// StartMillis is the coordinator's start time of the transaction in
	// milliseconds since the epoch, by which transactions below
	// transaction.version 2 are told apart; 0 if it was not asked.
	StartMillis int64
	// Empty is true if nothing was written: committing is a success without a
	// request.
	Empty bool
	// Witness is a record of the transaction, by which its outcome can be
	// found out when the coordinator no longer knows.
	Witness Witness
}

// Witness is a record that a transaction wrote. An empty Topic is none.
type Witness struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Offset    int64
}

const preparedPrefix = "ktxn1"

var errPreparedText = errors.New("not the text of a prepared transaction")

// String returns the text form, which ParsePreparedTxn reads: colon-separated
// fields, the transactional id last so that it may contain anything.
func (p PreparedTxn) String() string {
	flags := ""
	if p.Empty {
		flags = "e"
	}
	witness := ""
	if w := p.Witness; w.Topic != "" {
		witness = strings.Join([]string{
			base64.RawURLEncoding.EncodeToString([]byte(w.Topic)), hex.EncodeToString(w.TopicID[:]),
			strconv.FormatInt(int64(w.Partition), 10), strconv.FormatInt(w.Offset, 10),
		}, ",")
	}
	return strings.Join([]string{
		preparedPrefix, strconv.FormatInt(p.ProducerID, 10), strconv.FormatInt(int64(p.ProducerEpoch), 10),
		strconv.FormatInt(int64(p.TransactionVersion), 10), strconv.FormatInt(p.StartMillis, 10),
		flags, witness, p.TransactionalID,
	}, ":")
}

// ParsePreparedTxn reads what [PreparedTxn.String] wrote.
func ParsePreparedTxn(s string) (PreparedTxn, error) {
	fields := strings.SplitN(s, ":", 8)
	if len(fields) != 8 || fields[0] != preparedPrefix {
		return PreparedTxn{}, fmt.Errorf("%w: %.64q", errPreparedText, s)
	}
	var p PreparedTxn
	var errs []error
	p.ProducerID = parseInt(fields[1], 64, &errs)
	p.ProducerEpoch = int16(parseInt(fields[2], 16, &errs))
	p.TransactionVersion = int16(parseInt(fields[3], 16, &errs))
	p.StartMillis = parseInt(fields[4], 64, &errs)
	switch fields[5] {
	case "":
	case "e":
		p.Empty = true
	default:
		errs = append(errs, fmt.Errorf("flags %q", fields[5]))
	}
	if fields[6] != "" {
		p.Witness = parseWitness(fields[6], &errs)
	}
	p.TransactionalID = fields[7]
	if err := p.valid(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return PreparedTxn{}, fmt.Errorf("%w: %.64q: %w", errPreparedText, s, errors.Join(errs...))
	}
	return p, nil
}

func parseWitness(s string, errs *[]error) (w Witness) {
	fields := strings.Split(s, ",")
	if len(fields) != 4 {
		*errs = append(*errs, fmt.Errorf("witness %q", s))
		return w
	}
	topic, err := base64.RawURLEncoding.Strict().DecodeString(fields[0])
	if err != nil || len(topic) == 0 {
		*errs = append(*errs, fmt.Errorf("witness topic %q", fields[0]))
	}
	id, err := hex.DecodeString(fields[1])
	if err != nil || len(id) != len(w.TopicID) {
		*errs = append(*errs, fmt.Errorf("witness topic id %q", fields[1]))
	}
	w.Topic = string(topic)
	copy(w.TopicID[:], id)
	w.Partition = int32(parseInt(fields[2], 32, errs))
	w.Offset = parseInt(fields[3], 64, errs)
	return w
}

func parseInt(s string, bits int, errs *[]error) int64 {
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil {
		*errs = append(*errs, err)
	}
	return n
}

// valid reports whether p could be ended.
func (p PreparedTxn) valid() error {
	switch {
	case p.TransactionalID == "":
		return ErrEmptyID
	case p.Empty && p.ProducerID == -1:
		return nil
	case p.ProducerID < 0 || p.ProducerEpoch < 0:
		return fmt.Errorf("producer id %d and epoch %d are not those of a transaction", p.ProducerID, p.ProducerEpoch)
	}
	return nil
}

// PreparedState returns KIP-939's form of the identity, "producerId:epoch", as
// Java's PreparedTxnState has it.
func (p PreparedTxn) PreparedState() string {
	return strconv.FormatInt(p.ProducerID, 10) + ":" + strconv.FormatInt(int64(p.ProducerEpoch), 10)
}

// ParsePreparedState reads KIP-939's "producerId:epoch". What it does not say
// stays unknown: TransactionVersion is -1, and there is no witness.
func ParsePreparedState(transactionalID, state string) (PreparedTxn, error) {
	id, epoch, ok := strings.Cut(state, ":")
	var errs []error
	p := PreparedTxn{
		TransactionalID: transactionalID, TransactionVersion: -1,
		ProducerID: parseInt(id, 64, &errs), ProducerEpoch: int16(parseInt(epoch, 16, &errs)),
	}
	if err := p.valid(); err != nil {
		errs = append(errs, err)
	}
	if !ok || len(errs) > 0 {
		return PreparedTxn{}, fmt.Errorf("%w: prepared state %.64q: %w", errPreparedText, state, errors.Join(errs...))
	}
	return p, nil
}

// MarshalText returns the text form; it never fails.
func (p PreparedTxn) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form.
func (p *PreparedTxn) UnmarshalText(b []byte) error {
	q, err := ParsePreparedTxn(string(b))
	if err == nil {
		*p = q
	}
	return err
}

// Value returns the text form for database/sql.
func (p PreparedTxn) Value() (driver.Value, error) { return p.String(), nil }

// Scan reads the text form from a database/sql column of text or bytes.
func (p *PreparedTxn) Scan(src any) error {
	switch src := src.(type) {
	case string:
		return p.UnmarshalText([]byte(src))
	case []byte:
		return p.UnmarshalText(src)
	}
	return fmt.Errorf("%w: a column of type %T", errPreparedText, src)
}
