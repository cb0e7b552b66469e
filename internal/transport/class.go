package transport

// Class says what an answer means for the caller of a request.
type Class uint8

const (
	// ClassNone is success.
	ClassNone Class = iota
	// ClassRetriable: send the same request again, to the same node.
	ClassRetriable
	// ClassRefresh: look up the coordinator or leader again, then retry.
	ClassRefresh
	// ClassAbortable: the transaction cannot commit any more; abort it.
	ClassAbortable
	// ClassDenied: authorization was refused. Nothing changed; the call may
	// be made again after the grant.
	ClassDenied
	// ClassFatal: the producer id is of no more use.
	ClassFatal
	// ClassFenced: another owner holds the transactional id, or the epoch
	// moved on.
	ClassFenced
	// ClassUnknown: neither a retry nor a verdict follows from the answer.
	ClassUnknown
	// ClassUnsupported: the broker, or the user's version caps, do not allow
	// the request. Nothing was applied.
	ClassUnsupported
)

var classNames = [...]string{
	ClassNone:        "none",
	ClassRetriable:   "retriable",
	ClassRefresh:     "refresh",
	ClassAbortable:   "abortable",
	ClassDenied:      "denied",
	ClassFatal:       "fatal",
	ClassFenced:      "fenced",
	ClassUnknown:     "unknown",
	ClassUnsupported: "unsupported",
}

// String returns the class in lower case, as docs/retries.md shows it.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "invalid"
}

// Retries reports whether the class asks for another attempt.
func (c Class) Retries() bool { return c == ClassRetriable || c == ClassRefresh }
