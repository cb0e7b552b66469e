package heartbeat

import "time"

// Opt is an option of [Start]; if one is given twice, the last one counts.
type Opt interface{ heartbeatOpt() }

type onMissOpt func(missed int, left time.Duration, err error)

func (onMissOpt) heartbeatOpt() {}

// OnMiss has fn called after each failed beat that will be tried again, to
// log it or to prepare for the end: missed counts the failures since the last
// success, left is the time until the deadline and err what the beat
// returned. It is not called for a beat that ends the loop or that the end of
// the loop cut short.
//
// fn runs on the loop's goroutine: the next beat waits for it. It must not
// call [Loop.Stop].
func OnMiss(fn func(missed int, left time.Duration, err error)) Opt { return onMissOpt(fn) }
