package transport

// Row is one line of the retry table.
type Row struct {
	Key    int16  // of the request
	Code   int16  // of the answer
	Rest   bool   // the row is for every code that the key has no row for
	Class  Class  // what the answer means
	Open   bool   // the request may have been applied all the same
	Reason string // why, in a few words
}

// Classify returns the class of an answer.
func Classify(key, code int16) Class {
	if code == 0 {
		return ClassNone
	}
	return ClassUnknown
}

// Rows returns the retry table, ordered by key and code.
func Rows() []Row { return nil }
