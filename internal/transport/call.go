package transport

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type targetKind uint8

const (
	targetAny targetKind = iota
	targetTxn
	targetGroup
	targetNode
)

// Target names the broker that a call goes to. The zero Target is AnyNode.
type Target struct {
	kind targetKind
	id   string
	node int32
}

// TxnCoordinator is the transaction coordinator of a transactional id.
func TxnCoordinator(id string) Target { return Target{kind: targetTxn, id: id} }

// GroupCoordinator is the coordinator of a consumer or share group.
func GroupCoordinator(group string) Target { return Target{kind: targetGroup, id: group} }

// Node is one broker by its id. A call to it ends with ClassRefresh rather
// than looking anything up: only the caller knows who leads now.
func Node(id int32) Target { return Target{kind: targetNode, node: id} }

// AnyNode is whichever broker answers.
func AnyNode() Target { return Target{} }

// Call is one request with all its attempts.
type Call struct {
	// Target is where the request goes; a coordinator is looked up again
	// when the answers ask for it.
	Target Target
	// New returns a fresh request for each attempt. An attempt that was
	// given up may still be read by its connection.
	New func() kmsg.Request
	// Code returns the error of an answer that decides (0: success) and the
	// broker's message, if any. For answers with many codes the caller picks
	// the worst. A nil Code takes any answer for a success.
	Code func(kmsg.Response) (code int16, message string)
	// MaxVersion is the highest version that may be sent; 0 means no cap
	// unless Capped.
	MaxVersion int16
	// Capped makes a MaxVersion of 0 count.
	Capped bool
	// MinVersion is the lowest version that carries what the request says.
	// If a lower one is negotiated, nothing that a broker could apply is
	// sent and the error is kerr.UnsupportedVersion.
	MinVersion int16
	// Backoff returns the wait after the given failed attempt (1 is the
	// first) and its code, 0 for a network error. Nil: the default.
	Backoff func(attempt int, code int16) time.Duration
	// Give, if set, is asked after each attempt that would be retried, and
	// ends the call with the result it is shown by returning true.
	Give func(Result) bool
}

// Result is how a call ended, over all its attempts.
type Result struct {
	// Resp is the last answer; nil if there was none.
	Resp kmsg.Response
	// Version is the version of the last request sent, -1 if none was.
	Version int16
	// Node is the broker of the last attempt, -1 if none was resolved.
	Node int32
	// Code is the code of the last answer.
	Code int16
	// Err is nil on success. It wraps a *kerr.Error, a network error, or
	// kgo.ErrClientClosed; when a context ended the call it wraps both the
	// context's cause and the last error before that.
	Err error
	// Class is the class of Err. When a context ended the call it is
	// ClassUnknown if Unanswered, else ClassRetriable.
	Class Class
	// Sent is false only if no byte of any attempt left the process.
	Sent bool
	// Unanswered is true if some attempt that may have been sent has no
	// answer, or got one that leaves its effect open. A later retriable
	// answer does not clear it.
	Unanswered bool
	// Attempts counts the requests handed to a connection.
	Attempts int
}
