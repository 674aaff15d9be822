package extproc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// authority signs certificates of proxies.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM of cert
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// sign returns the files of a client certificate with the SPIFFE name.
func (a *authority) sign(name string, until time.Time) (certFile, keyFile string) {
	a.t.Helper()
	uri, err := url.Parse(name)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, _ := x509.MarshalECPrivateKey(key)
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.write(certFile, "CERTIFICATE", der)
	a.write(keyFile, "EC PRIVATE KEY", secret)
	return certFile, keyFile
}

const proxyName = "spiffe://example.org/ns/llm/sa/envoy"

// TestClientCertificates: with a CA file, only proxies with a certificate of these CAs and an
// allowed name are served.
func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	s, ready := opened(t, extproc.Options{}, extproc.Listen{TLS: listen.TLS{ClientCA: ours.file, ClientNames: []string{proxyName}, Min: "1.3"}})
	ready.Set(true)
	hour := time.Now().Add(time.Hour)
	check := func(a *authority, name string, until time.Time, oldest uint16) error {
		cfg := &tls.Config{InsecureSkipVerify: true, MaxVersion: oldest}
		if a != nil {
			cert, err := tls.LoadX509KeyPair(a.sign(name, until))
			if err != nil {
				t.Fatal(err)
			}
			cfg.Certificates = []tls.Certificate{cert}
		}
		_, err := healthpb.NewHealthClient(dial(t, s.Addr(), credentials.NewTLS(cfg))).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
	if err := check(ours, proxyName, hour, 0); err != nil {
		t.Errorf("the right proxy: %v", err)
	}
	for what, err := range map[string]error{
		"no certificate":    check(nil, "", hour, 0),
		"another name":      check(ours, "spiffe://example.org/ns/llm/sa/other", hour, 0),
		"another authority": check(theirs, proxyName, hour, 0),
		"expired":           check(ours, proxyName, time.Now().Add(-time.Hour), 0),
		"TLS 1.2":           check(ours, proxyName, hour, tls.VersionTLS12),
	} {
		if err == nil {
			t.Errorf("%s: let in", what)
		}
	}
	// New authorities count without a restart.
	raw, err := os.ReadFile(theirs.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Chtimes(ours.file, hour, hour)
	testkit.Await(t, "the new authority", func() bool { return check(theirs, proxyName, hour, 0) == nil })
	if check(ours, proxyName, hour, 0) == nil {
		t.Error("the old authority still counts")
	}
}

func TestTLSSettings(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]listen.TLS{
		"version": {Min: "1.1"}, "plaintext": {Plaintext: true, ClientCA: "x"}, "names alone": {ClientNames: []string{"x"}},
		"no file": {ClientCA: "/nonexistent"}, "empty file": {ClientCA: empty},
	} {
		if _, err := bad.Config(nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestEnvoyClientCertificate: Envoy presents a certificate, and so do the health checks of its
// cluster. The configuration decides by its name whether to trust it.
func TestEnvoyClientCertificate(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.sign(proxyName, time.Now().Add(time.Hour))
	var believed atomic.Bool
	believed.Store(true)
	r := newRig(t, rigOptions{
		params: envoyconf.Params{CertFile: cert, KeyFile: key},
		tls:    listen.TLS{ClientCA: a.file, ClientNames: []string{proxyName}, Min: "1.3"},
		options: extproc.Options{Trust: func() *request.Trust {
			if believed.Load() {
				return &request.Trust{Proxies: []string{proxyName}}
			}
			return &request.Trust{Proxies: []string{proxyName + "/other"}}
		}},
	})
	ask := call{size: 1000, model: "m", answer: 10, header: map[string]string{request.HeaderModelRewrite: "n"}}
	r.check(ask)
	believed.Store(false)
	r.check(ask)
	r.book.settle(t)
	r.book.set(func(b *book) {
		if len(b.requests) != 2 || b.requests[0].Target != "n" || b.requests[0].Capped || b.requests[1].Target != "m" || !b.requests[1].Capped {
			t.Errorf("placed: %+v", b.requests)
		}
	})
	r.clean()
}
