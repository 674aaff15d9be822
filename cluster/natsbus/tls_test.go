package natsbus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/natsbus"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLS shares state over a server with TLS and a token. Replicas that do not trust the server or
// have no token report it.
func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	s := startServer(t, embedded.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Token: "secret"})
	good := func(o *natsbus.Options) { o.TLS, o.Token = &tls.Config{RootCAs: pool}, "secret" }
	a, b := newNode(t, "a", []string{s.URL()}, good), newNode(t, "b", []string{s.URL()}, good)
	a.Start(t, "e1")
	b.Start(t, "e1")
	testkit.Eventually(t, func() string { return joined(a, b) })

	for what, change := range map[string]func(*natsbus.Options){
		"certificate":   func(o *natsbus.Options) { o.TLS, o.Token = &tls.Config{}, "secret" },
		"authorization": func(o *natsbus.Options) { o.TLS, o.Token = &tls.Config{RootCAs: pool}, "wrong" },
	} {
		n := newNode(t, "x", []string{s.URL()}, change)
		if err := n.Open(t.Context()); err != nil {
			if !strings.Contains(strings.ToLower(err.Error()), what) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		testkit.Eventually(t, func() string {
			h := n.Status().Health
			if h.OK || !strings.Contains(strings.ToLower(h.Line), what) {
				return what + ": " + h.Line
			}
			return ""
		})
	}
}
