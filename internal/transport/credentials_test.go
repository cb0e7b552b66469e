package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

func untrustedError() error {
	return &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
}

func password(pass string) sasl.Mechanism {
	return plain.Auth{User: "user", Pass: pass}.AsMechanism()
}

func TestDoWithCredentials(t *testing.T) {
	broker := []any{kfake.EnableSASL(), kfake.Superuser("PLAIN", "user", "right")}
	t.Run("that are right", func(t *testing.T) {
		e := start(t, append(broker, kgo.SASL(password("right")))...)
		require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	})
	t.Run("that are wrong", func(t *testing.T) {
		e := start(t, append(broker, kgo.SASL(password("wrong")))...)
		refused := e.fault(int16(kmsg.SASLAuthenticate), faultnet.Answer, code(kerr.SaslAuthenticationFailed.Code), times(faultnet.Forever))
		r := e.c.Lane().Do(within(t), initCall("id"))
		require.ErrorIs(t, r.Err, kerr.SaslAuthenticationFailed)
		require.Equal(t, transport.ClassDenied, r.Class)
		require.False(t, r.Sent)
		_, err := e.c.TransactionVersion(within(t), "", false)
		require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
		_, err = e.c.Topic(within(t), "t")
		require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
		_, err = e.c.Supports(within(t), transport.CapShareGroups)
		require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
		require.Positive(t, refused.Hits())
	})
}

// closingMechanism counts how often it is closed.
type closingMechanism struct {
	sasl.Mechanism
	closed *int
}

func (m closingMechanism) Close() { *m.closed++ }

func TestMechanismsAreClosedOnceAndByTheirOwner(t *testing.T) {
	broker := []any{kfake.EnableSASL(), kfake.Superuser("PLAIN", "user", "right")}
	var closed int
	e := start(t, append(broker, kgo.SASL(closingMechanism{password("right"), &closed}))...)
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	lane, release := e.c.OwnLane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	release()
	require.Zero(t, closed, "other lanes still use it")

	// A client made from another one's settings does not own the mechanism.
	other := e.client(func(o *transport.Options) { o.Kgo = transport.Settings(e.c.LookupClient()) })
	require.NoError(t, other.Lane().Do(within(t), initCall("id")).Err)
	other.Close()
	require.Zero(t, closed)

	e.c.Close()
	require.Equal(t, 1, closed)
}
