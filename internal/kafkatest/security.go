package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// SuperUser is the user of a secured cluster who may do everything.
const SuperUser = "admin"

const (
	nodesName  = "kafkatest" // the common name in the certificate that all nodes use
	scramName  = "SCRAM-SHA-256"
	scramLogin = "org.apache.kafka.common.security.scram.ScramLoginModule required"
)

// security is what the clients and the nodes of a secured cluster know.
type security struct {
	CA     []byte // PEM
	Secret []byte // from which every user's password is made
	dir    string // where the nodes find ca.pem and node.pem
}

// newSecurity makes a certificate authority and the nodes' key, and writes them
// into dir.
func newSecurity(dir string) (*security, error) {
	s := &security{Secret: make([]byte, 16), dir: dir}
	if _, err := rand.Read(s.Secret); err != nil {
		return nil, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: nodesName + " CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	node := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: nodesName},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	nodeDER, err := x509.CreateCertificate(rand.Reader, node, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	store := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: nodeDER})...)
	if err := os.WriteFile(s.keyStore(), store, 0o600); err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.trustStore(), s.CA, 0o600)
}

func (s *security) keyStore() string   { return filepath.Join(s.dir, "node.pem") }
func (s *security) trustStore() string { return filepath.Join(s.dir, "ca.pem") }

// set adds the settings of a node. Nodes know each other by certificate: SCRAM
// between controllers would need the metadata that they are about to load.
func (s *security) set(p *properties) {
	p.set("listener.security.protocol.map", "CLIENT:SASL_SSL,NODES:SSL,CONTROLLER:SSL")
	p.set("ssl.keystore.type", "PEM")
	p.set("ssl.keystore.location", s.keyStore())
	p.set("ssl.truststore.type", "PEM")
	p.set("ssl.truststore.location", s.trustStore())
	p.set("listener.name.nodes.ssl.client.auth", "required")
	p.set("listener.name.controller.ssl.client.auth", "required")
	p.set("sasl.enabled.mechanisms", scramName)
	p.set("listener.name.client.scram-sha-256.sasl.jaas.config", scramLogin+";")
	p.set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
	p.set("allow.everyone.if.no.acl.found", false)
	p.set("super.users", "User:"+SuperUser+";User:CN="+nodesName)
}

// password of a user: every process that knows the cluster can tell it.
func (s *security) password(user string) string {
	h := hmac.New(sha256.New, s.Secret)
	h.Write([]byte(user))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// opts are the client options that let user in.
func (s *security) opts(user string) []kgo.Opt {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA)
	return []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}),
		kgo.SASL(scram.Auth{User: user, Pass: s.password(user)}.AsSha256Mechanism()),
	}
}

// javaProperties adds the same for a Java client.
func (s *security) javaProperties(p *properties, user string) {
	p.set("security.protocol", "SASL_SSL")
	p.set("ssl.truststore.type", "PEM")
	p.set("ssl.truststore.certificates", strings.ReplaceAll(strings.TrimSpace(string(s.CA)), "\n", `\n`))
	p.set("sasl.mechanism", scramName)
	p.set("sasl.jaas.config", scramLogin+` username="`+user+`" password="`+s.password(user)+`";`)
}
