package transport

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Settings returns options that give another kgo client the client-level
// settings of cl: how to reach brokers, who to be, which versions, limits and
// timeouts. It reads values and never replays cl's own options, which could
// join a group or open a transaction a second time. Left out are hooks,
// metrics and the lifetime context, which have one home each. SASL mechanisms
// are shared and stay open when the other client closes.
func Settings(cl *kgo.Client) []kgo.Opt {
	var opts []kgo.Opt
	read(cl, &opts, kgo.ClientID, kgo.ClientID)
	if sv := cl.OptValues(kgo.SoftwareNameAndVersion); len(sv) == 2 {
		name, _ := sv[0].(string)
		version, _ := sv[1].(string)
		opts = append(opts, kgo.SoftwareNameAndVersion(name, version))
	}
	if l, ok := cl.OptValue(kgo.WithLogger).(kgo.Logger); ok {
		opts = append(opts, kgo.WithLogger(l))
	}
	read(cl, &opts, kgo.SeedBrokers, func(v []string) kgo.Opt { return kgo.SeedBrokers(v...) })
	// The dialer of a built client includes its TLS and its dial timeout.
	read(cl, &opts, kgo.Dialer, kgo.Dialer)
	read(cl, &opts, kgo.SASL, func(v []sasl.Mechanism) kgo.Opt { return kgo.SASL(shareMechanisms(v)...) })
	read(cl, &opts, kgo.MaxVersions, kgo.MaxVersions)
	read(cl, &opts, kgo.MinVersions, kgo.MinVersions)

	read(cl, &opts, kgo.RequestTimeoutOverhead, kgo.RequestTimeoutOverhead)
	read(cl, &opts, kgo.ConnIdleTimeout, kgo.ConnIdleTimeout)
	read(cl, &opts, kgo.RetryBackoffFn, kgo.RetryBackoffFn)
	read(cl, &opts, kgo.RequestRetries, func(v int64) kgo.Opt { return kgo.RequestRetries(int(v)) })
	read(cl, &opts, kgo.RetryTimeoutFn, kgo.RetryTimeoutFn)
	read(cl, &opts, kgo.ConcurrentTransactionsBackoff, kgo.ConcurrentTransactionsBackoff)
	read(cl, &opts, kgo.MetadataMaxAge, kgo.MetadataMaxAge)
	read(cl, &opts, kgo.MetadataMinAge, kgo.MetadataMinAge)
	read(cl, &opts, kgo.ConsiderMissingTopicDeletedAfter, kgo.ConsiderMissingTopicDeletedAfter)
	read(cl, &opts, kgo.BrokerMaxWriteBytes, kgo.BrokerMaxWriteBytes)
	read(cl, &opts, kgo.BrokerMaxReadBytes, kgo.BrokerMaxReadBytes)
	read(cl, &opts, kgo.MaxDecompressBatchBytes, kgo.MaxDecompressBatchBytes)
	read(cl, &opts, kgo.WithPools, func(v []kgo.Pool) kgo.Opt { return kgo.WithPools(v...) })
	read(cl, &opts, kgo.OnRebootstrapRequired, kgo.OnRebootstrapRequired)
	readSwitch(cl, &opts, kgo.AllowAutoTopicCreation, kgo.AllowAutoTopicCreation)
	readSwitch(cl, &opts, kgo.AlwaysRetryEOF, kgo.AlwaysRetryEOF)
	return opts
}

func read[T any](cl *kgo.Client, opts *[]kgo.Opt, key any, build func(T) kgo.Opt) {
	if v, ok := cl.OptValue(key).(T); ok {
		*opts = append(*opts, build(v))
	}
}

func readSwitch(cl *kgo.Client, opts *[]kgo.Opt, key any, build func() kgo.Opt) {
	if on, ok := cl.OptValue(key).(bool); ok && on {
		*opts = append(*opts, build())
	}
}

// value reads one setting, with a fallback in case kgo changes its type.
func value[T any](cl *kgo.Client, key any, otherwise T) T {
	if v, ok := cl.OptValue(key).(T); ok {
		return v
	}
	return otherwise
}

// sharedMechanism hides the Close of a mechanism that several kgo clients use:
// the first of them to close would end it for all.
type sharedMechanism struct{ sasl.Mechanism }

func shareMechanisms(ms []sasl.Mechanism) []sasl.Mechanism {
	shared := make([]sasl.Mechanism, len(ms))
	for i, m := range ms {
		shared[i] = sharedMechanism{m}
	}
	return shared
}

// quietLogger is the logger of a user who gave none.
type quietLogger struct{}

func (quietLogger) Level() kgo.LogLevel              { return kgo.LogLevelNone }
func (quietLogger) Log(kgo.LogLevel, string, ...any) {}

// capsOf returns the user's version caps, nil if there are none. kgo's default
// is no choice of the user's, and it would hide InitProducerId v6 and v7.
func capsOf(cl *kgo.Client) *kversion.Versions {
	caps := value[*kversion.Versions](cl, kgo.MaxVersions, nil)
	if caps == nil || caps.Equal(kversion.Stable()) {
		return nil
	}
	return caps
}

// laneCaps returns the caps for a lane: the user's, or the newest stable ones
// with what two-phase commit adds, and in any case the draft keys.
func laneCaps(user *kversion.Versions, unlimited bool, drafts map[string]int16) *kversion.Versions {
	if user == nil && unlimited {
		return nil
	}
	caps := new(kversion.Versions)
	base := user
	if base == nil {
		base = kversion.Stable()
	}
	base.EachMaxKeyVersion(caps.SetMaxKeyVersion)
	if user == nil {
		caps.SetMaxKeyVersion(keyInitProducerID, initProducerIDMax)
	}
	for _, key := range drafts {
		caps.SetMaxKeyVersion(key, draftMaxVersion)
	}
	return caps
}

const (
	initProducerIDMax = 7  // KIP-939 and KIP-1309
	draftMaxVersion   = 99 // the request types know what they can encode
)

// backoffOf returns the user's backoff, limited for a loop whose budget is a
// context: never more than a second, and a quick first step.
func backoffOf(cl *kgo.Client) func(streak int) time.Duration {
	fn := value[func(int) time.Duration](cl, kgo.RetryBackoffFn, nil)
	return func(streak int) time.Duration {
		d := maxBackoff
		if fn != nil {
			d = min(max(fn(streak), 0), maxBackoff)
		}
		if streak <= 1 {
			d = min(d, firstBackoff)
		}
		return d
	}
}

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)
