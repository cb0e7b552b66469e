package heartbeat

import "errors"

var (
	// ErrStopped is the reason of a loop that [Loop.Stop] ended.
	ErrStopped = errors.New("heartbeat: stopped")

	// ErrDeadline is the reason of a loop whose deadline passed without a
	// successful beat. The error of [Loop.Err] also wraps what the last
	// failed beat returned, if one failed before the deadline. It is the
	// cause (context.Cause) of the context of a beat that the deadline cuts.
	ErrDeadline = errors.New("heartbeat: no beat succeeded before the deadline")
)

// ArgumentError is the reason of a loop that [Start] could not start. No beat
// was called.
type ArgumentError struct {
	Argument string // the parameter of Start
	Problem  string // what is wrong with it
}

// Error names the argument and what is wrong with it.
func (e *ArgumentError) Error() string {
	return "heartbeat: " + e.Argument + " " + e.Problem
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that no further beat can mend, such as having been
// fenced: a beat that returns it, wrapped or not, ends the loop, and
// [Loop.Err] returns what the beat returned, which unwraps to err. Permanent
// of nil is nil, hence a success.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

func isPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}
