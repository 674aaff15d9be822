package gossip_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/gossip"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert, a.key = a.sign(t, "authority")
	write(t, a.file, "CERTIFICATE", a.cert.Raw)
	return a
}

// sign makes a certificate. The first is the authority's own.
func (a *authority) sign(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: a.key == nil,
	}
	parent, signer := a.cert, a.key
	if signer == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// issue writes a new certificate and its key into dir.
func (a *authority) issue(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	cert, key := a.sign(t, name)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tls.key"), "PRIVATE KEY", der)
	write(t, filepath.Join(dir, "tls.crt"), "CERTIFICATE", cert.Raw)
	return cert
}

func write(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func certified(dir, ca string) func(*gossip.Options) {
	return func(o *gossip.Options) {
		o.CertFile, o.KeyFile, o.CAFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), ca
		o.CertCheck = 20 * time.Millisecond
	}
}

// shown returns the certificate that a node presents on streams.
func (n *node) shown() *x509.Certificate {
	_, rest, _ := strings.Cut(n.Status().Bus.Advertised, ", ")
	addr, _, _ := strings.Cut(rest, " ")
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// TestCertificateReload replaces a member's certificate while it runs. The group keeps working
// (package stream tests that no stream breaks), new streams use the new certificate, and new
// members accept it. Files that do not match each other, or whose CA did not sign the certificate,
// change nothing.
func TestCertificateReload(t *testing.T) {
	ca, dirA, dirB, dirC := newAuthority(t), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{dirA, dirB, dirC} {
		ca.issue(t, dir, "first")
	}
	a := newNode(t, "a", nil, certified(dirA, ca.file))
	b := newNode(t, "b", []string{a.addr}, certified(dirB, ca.file))
	for _, n := range []*node{a, b} {
		n.Start(t, "e1", "e2", "e3")
		t.Cleanup(func() { _ = n.Close() })
	}
	testkit.Eventually(t, func() string { return joined(a, b) })
	readAll(t, 9, a, b)

	second := ca.issue(t, dirA, "second")
	wait := func(n *node, want *x509.Certificate) {
		t.Helper()
		testkit.Eventually(t, func() string {
			if got := n.shown(); got == nil || !got.Equal(want) {
				return "another certificate is shown"
			}
			return ""
		})
	}
	wait(a, second)
	c := newNode(t, "c", []string{a.addr, b.addr}, certified(dirC, ca.file))
	c.Start(t, "e1", "e2", "e3")
	t.Cleanup(func() { _ = c.Close() })
	testkit.Eventually(t, func() string { return joined(a, b, c) })
	readAll(t, 19, a, b, c)

	newAuthority(t).issue(t, dirA, "of strangers")
	write(t, filepath.Join(dirB, "tls.crt"), "CERTIFICATE", second.Raw)
	time.Sleep(200 * time.Millisecond)
	wait(a, second)
	readAll(t, 29, a, b, c)
	third := ca.issue(t, dirA, "third")
	wait(a, third)
	readAll(t, 39, a, b, c)
	for _, n := range []*node{a, b, c} {
		testkit.Eventually(t, func() string {
			if h := n.Status().Health; h.State != "joined" {
				return h.Line
			}
			return ""
		})
	}
}

// TestCertificatesThatCannotWork: unusable certificates are rejected at startup, with a one-line
// error that names the file.
func TestCertificatesThatCannotWork(t *testing.T) {
	ca, other, dir := newAuthority(t), newAuthority(t), t.TempDir()
	ca.issue(t, dir, "x")
	broken := t.TempDir()
	ca.issue(t, broken, "x")
	write(t, filepath.Join(broken, "tls.key"), "PRIVATE KEY", []byte("garbage"))
	for says, change := range map[string]func(*gossip.Options){
		"unknown authority": certified(dir, other.file),
		"no such file":      certified(dir, filepath.Join(dir, "missing")),
		"tls.key":           certified(broken, ca.file),
		"no certificate":    certified(dir, filepath.Join(dir, "tls.key")),
	} {
		n := newNode(t, "a", nil, change)
		err := n.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error is %[2]v, want one line with %[1]q", says, err)
		}
		_ = n.Close()
	}
	if _, err := gossip.New(gossip.Options{Self: cluster.NewMember("a", "test"), CertFile: "x"}); err == nil {
		t.Error("accepted a certificate without a key")
	}
}
