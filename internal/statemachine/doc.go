// Package statemachine is the transition table of a transaction session.
//
// It is pure: no clock, no I/O, no locks. A session keeps a [State], asks
// [Next] what an [Event] makes of it, and does the work that the answer names.
// The same table is rendered into docs/state-machine.md, so the page cannot
// drift from the code.
//
// States and names follow Kafka's own transaction manager (and KIP-1310's
// TransactionSession, which takes them over), plus Closed.
package statemachine
