package txnsession

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Opt is an option of New, Resume and ResumePrepared. The last of two that set
// the same thing wins.
type Opt interface{ sessionOpt() }

type sessionOpt struct{ set func(*config) }

func (sessionOpt) sessionOpt() {}

type config struct {
	txnTimeout       time.Duration
	txnTimeoutSet    bool
	sessionTimeout   time.Duration
	requireHeartbeat bool
	twoPhase         bool
	resumeOldRules   bool
	ownConnection    bool
}

// TransactionTimeout sets how long a transaction may stay open before the
// coordinator aborts it, overriding the default of one minute. It is
// transaction.timeout.ms; the broker's transaction.max.timeout.ms bounds it.
// It is refused together with [TwoPhaseCommit], which has no limit.
func TransactionTimeout(d time.Duration) Opt {
	return sessionOpt{func(c *config) { c.txnTimeout, c.txnTimeoutSet = d, true }}
}

// TransactionSessionTimeout sets how long the coordinator waits for a
// heartbeat before it aborts an open transaction (KIP-1309), overriding the
// default of 0: no heartbeats. Beats are sent while a transaction is open. On a
// cluster without TxnHeartbeat the session logs so once and goes on, unless
// [RequireHeartbeat]. It is refused together with [TwoPhaseCommit]: the
// coordinator cannot see that a transaction is prepared and would abort it.
func TransactionSessionTimeout(d time.Duration) Opt {
	return sessionOpt{func(c *config) { c.sessionTimeout = d }}
}

// RequireHeartbeat makes Initialize fail with [ErrHeartbeatUnsupported] where
// the cluster has no TxnHeartbeat, instead of going on without.
func RequireHeartbeat() Opt {
	return sessionOpt{func(c *config) { c.requireHeartbeat = true }}
}

// TwoPhaseCommit asks for transactions without a time limit, for use with
// Prepare (KIP-939; transaction.two.phase.commit.enable). Initialize fails with
// [ErrTwoPhaseCommitUnsupported], before anything is sent that could abort a
// transaction, where the cluster cannot do it.
func TwoPhaseCommit() Opt {
	return sessionOpt{func(c *config) { c.twoPhase = true }}
}

// AllowResumeOldRules lets a session resumed from a bare (id, producer id,
// epoch) commit on a cluster whose transaction.version is below 2. There the
// epoch does not change from one transaction to the next, so that a later
// transaction of the same producer could be committed instead. A session
// resumed from a [PreparedTxn] does not need it: it is checked first.
func AllowResumeOldRules() Opt {
	return sessionOpt{func(c *config) { c.resumeOldRules = true }}
}

// OwnConnection gives the session coordinator connections of its own instead
// of one of the netclient's lanes, at the cost of one connection per
// coordinator and a few goroutines. It keeps a session apart from others that
// a slow coordinator answers late.
func OwnConnection() Opt {
	return sessionOpt{func(c *config) { c.ownConnection = true }}
}

const maxTimeout = time.Duration(math.MaxInt32) * time.Millisecond

func newConfig(opts []Opt) (config, error) {
	c := config{txnTimeout: time.Minute}
	for _, o := range opts {
		so, ok := o.(sessionOpt)
		if !ok {
			return c, errors.New("nil option")
		}
		so.set(&c)
	}
	switch {
	case c.twoPhase && c.sessionTimeout != 0:
		return c, errors.New("TwoPhaseCommit and TransactionSessionTimeout exclude each other: the coordinator cannot see that a transaction is prepared, and would abort it once the beats end")
	case c.twoPhase && c.txnTimeoutSet:
		return c, errors.New("TwoPhaseCommit and TransactionTimeout exclude each other: a two-phase transaction has no time limit")
	case c.requireHeartbeat && c.sessionTimeout == 0:
		return c, errors.New("RequireHeartbeat needs a TransactionSessionTimeout")
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"TransactionTimeout", c.txnTimeout}, {"TransactionSessionTimeout", c.sessionTimeout}} {
		if t.d < 0 || t.d > maxTimeout || t.d > 0 && t.d < time.Millisecond {
			return c, fmt.Errorf("%s of %v is not within 1ms and %v", t.name, t.d, maxTimeout)
		}
	}
	if c.txnTimeout == 0 {
		return c, errors.New("TransactionTimeout of 0")
	}
	return c, nil
}
