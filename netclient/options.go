package netclient

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/transport"
)

// defaultLanes is the default of CoordinatorLanes and of ProduceLanes.
const defaultLanes = 4

// Opt is an option of this package. It is a kgo.Opt too, so that New takes
// both kinds; given to kgo.NewClient it does nothing. Where an option is given
// more than once the last one counts.
type Opt interface {
	kgo.Opt
	netclientOpt()
}

type opt struct {
	kgo.Opt // one that does nothing
	set     func(*config) error
}

func (opt) netclientOpt() {}

func newOpt(set func(*config) error) Opt { return opt{kgo.WithHooks(), set} }

// config is what the options say.
type config struct {
	kgo              []kgo.Opt
	hooks            []kgo.Hook // those that kgo refuses
	coordinatorLanes int
	produceLanes     int
	drafts           map[string]transport.Proof
}

// add takes one option that was given to who.
func (cfg *config) add(who string, o kgo.Opt) error {
	switch o := o.(type) {
	case nil:
		return errors.New("nil given to " + who)
	case opt:
		return o.set(cfg)
	case kgo.ProducerOpt:
		return errors.New("kgo.ProducerOpt given to " + who + ": producer options belong to producer.New")
	case kgo.GroupOpt:
		return errors.New("kgo.GroupOpt given to " + who + ": group options belong to the kgo client that consumes in the group")
	case kgo.ConsumerOpt:
		return errors.New("kgo.ConsumerOpt given to " + who + ": consumer options belong to the kgo client that consumes; shareconsumer.New has options of its own")
	}
	cfg.kgo = append(cfg.kgo, o)
	return nil
}

// CoordinatorLanes sets how many connections to each coordinator the sessions
// share, overriding the default of 4. A session stays on one of them, and a
// broker answers one connection after the other: more lanes let more sessions
// end transactions at the same time. New refuses less than 1.
func CoordinatorLanes(n int) Opt {
	return newOpt(func(cfg *config) error {
		cfg.coordinatorLanes = n
		return atLeastOne("CoordinatorLanes", n)
	})
}

// ProduceLanes sets how many kgo clients carry Produce, overriding the default
// of 4. A producer stays on one of them, with one connection to each broker.
// New refuses less than 1.
func ProduceLanes(n int) Opt {
	return newOpt(func(cfg *config) error {
		cfg.produceLanes = n
		return atLeastOne("ProduceLanes", n)
	})
}

func atLeastOne(name string, n int) error {
	if n < 1 {
		return fmt.Errorf("netclient.%s(%d): at least 1 is needed", name, n)
	}
	return nil
}

// WithHooks adds hooks, as kgo.WithHooks does, but takes hooks of this module
// that implement none of kgo's interfaces: kgo refuses those. A hook may
// implement any number of interfaces of kgo and of this module.
func WithHooks(hooks ...kgo.Hook) Opt {
	return newOpt(func(cfg *config) error {
		for _, h := range hooks {
			if h == nil {
				return errors.New("netclient.WithHooks: the hook is nil")
			}
			if with := kgo.WithHooks(h); kgo.ValidateOpts(with) == nil {
				cfg.kgo = append(cfg.kgo, with)
			} else {
				cfg.hooks = append(cfg.hooks, h)
			}
		}
		return nil
	})
}

// DraftAPI says how brokers show a capability whose numbers Kafka has not
// settled, and by which keys its requests go. Without it a capability is
// proven only by what this module's embedded test cluster announces, and by no
// broker in the field.
//
// New refuses a capability that is unknown or settled, a proof without a
// feature, a request that the capability does not have, and a key that belongs
// to another request.
func DraftAPI(k Capability, p Proof) Opt {
	return newOpt(func(cfg *config) error {
		cfg.drafts[string(k)] = transport.Proof{Feature: p.Feature, MinLevel: p.MinLevel, Keys: p.Keys}
		return nil
	})
}

// Proof is what every broker of a cluster must show: a finalized feature at
// some level, and the keys of the requests. Keys alone prove nothing, since
// Kafka may give the numbers to something else.
type Proof struct {
	// Feature is the name of a finalized feature.
	Feature string
	// MinLevel is its lowest level, at least 1.
	MinLevel int16
	// Keys maps the names of requests, such as "TxnHeartbeat", to their
	// keys. TxnHeartbeat has the request TxnHeartbeat, TxnShareAcks has
	// TxnShareAcknowledge and AddShareAcksToTxn, of which one will do; the
	// capabilities of KIP-939 have none.
	Keys map[string]int16
}
