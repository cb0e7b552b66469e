package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ktxn/ktxn/internal/wire"
)

// whyNotSent judges the error of a request that never left. Nothing can have
// happened, so the only question is whether trying again can help. kgo does
// not export the errors that say it cannot: those are found by asking the
// broker what it supports.
func (c *Client) whyNotSent(ctx context.Context, node int32, key int16, err error) (Class, error) {
	var version *wire.VersionError
	var code *kerr.Error
	switch {
	case errors.As(err, &version):
		return ClassUnsupported, err
	case untrusted(err):
		return ClassDenied, err
	case isNetwork(err):
		return ClassRetriable, err
	case errors.As(err, &code):
		// Of the connection's own set-up: SASL or ApiVersions.
		return c.classify(keyAPIVersions, code.Code).Class, err
	}
	v, verr := c.NodeVersions(ctx, node, false)
	if verr != nil {
		return ClassRetriable, err
	}
	negotiated := v.MaxVersion(key)
	if negotiated < 0 {
		return ClassUnsupported, fmt.Errorf("%w: broker %d has no %s that the version caps allow: %w", kerr.UnsupportedVersion, node, KeyName(key), err)
	}
	if c.minV != nil {
		if low, ok := c.minV.LookupMaxKeyVersion(key); ok && low > negotiated {
			return ClassUnsupported, fmt.Errorf("%w: kgo.MinVersions asks for %s v%d, broker %d has v%d: %w", kerr.UnsupportedVersion, KeyName(key), low, node, negotiated, err)
		}
	}
	return ClassRetriable, err
}

// untrusted reports whether the two sides refuse each other's certificates or
// do not speak TLS with each other.
func untrusted(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		header       tls.RecordHeaderError
		alert        tls.AlertError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}

// isNetwork reports whether err is the network's.
func isNetwork(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
