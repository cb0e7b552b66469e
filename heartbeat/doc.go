// Package heartbeat is one periodic beat with its deadline and its reason for
// stopping.
//
// A [Loop] calls a function, the beat, to keep something alive that another
// party lets expire: a transaction session at its coordinator, a membership, a
// lock. It knows three times: the interval between beats, the deadline by
// which one has to succeed, and how much of it is left. It does no I/O and
// knows nothing about Kafka.
//
// # Lifecycle
//
// [Start] starts the loop, which always ends for exactly one reason: somebody
// called [Loop.Stop], the context ended, the deadline passed without a
// success, or the beat returned an error marked by [Permanent]. [Loop.Done]
// says when, [Loop.Err] says why. The first reason stands.
//
// # Timing
//
// Starting counts as a success: what starts a loop has just proven that it is
// alive, so the first beat comes one interval later. A success moves the
// deadline, counted from the moment before the beat was called and not from
// its answer: the other party received it in between and may have counted
// from any of these moments, and only the earliest is safe to rely on.
//
// The interval runs between the starts of beats; a beat that takes longer
// than the interval is followed by the next at once. A wait is never longer
// than two thirds of the deadline, whatever interval or override is asked
// for, and a failed beat is tried again after at most a third of the time
// that was left when the first of the series failed. So there is always room
// for two more tries, if failures are fast: the context of a beat lasts as
// long as the deadline, and a beat that wants to be tried again after a hang
// has to bound itself.
//
// # Concurrency
//
// A loop is one goroutine, which calls the beat and the [OnMiss] function one
// at a time. The methods of a Loop may be called by any goroutine, Stop not
// from inside these two functions (see there).
package heartbeat
