package link_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// authority signs the certificates of clusters into files of one folder.
type authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{dir: dir, name: name}
	a.issue(t, name)
	return a
}

// issue writes NAME.crt and NAME.key. The first pair is the authority's own.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: a.key == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if signer == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if a.key == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key = key
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, filepath.Join(a.dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

var pool = federation.PoolKey{Namespace: "ns", Name: "p"}

// tlsConfig is the configuration of a listening cluster with certificate NAME.crt.
func tlsConfig(a *authority, cluster string, peers ...link.PeerConfig) *link.Config {
	at := func(name string) string { return filepath.Join(a.dir, name) }
	return &link.Config{
		Cluster: cluster, Listen: "127.0.0.1:0", CertFile: at(cluster + ".crt"), KeyFile: at(cluster + ".key"), CAFile: at(a.name + ".crt"),
		SecretFile: at("secret"), Lease: 2 * time.Second, Peers: peers,
	}
}

// fixture is a folder with a CA, certificates for clusters a and b, and a secret.
func fixture(t *testing.T) *authority {
	t.Helper()
	dir := t.TempDir()
	a := newAuthority(t, dir, "ca")
	a.issue(t, "a")
	a.issue(t, "b")
	write(t, filepath.Join(dir, "secret"), []byte("MDEyMzQ1Njc4OWFiY2RlZg==\n"))
	write(t, filepath.Join(dir, "pair"), []byte("cGFpcnBhaXJwYWlycGFpcg==\n"))
	return a
}

// member returns the TLS configuration of a cluster that violates the protocol.
func (a *authority) member(t *testing.T, cluster string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, cluster+".crt"), filepath.Join(a.dir, cluster+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"grapevine-federation/1"}}
}

func open(t *testing.T, c *link.Config, replica string) *link.Link {
	t.Helper()
	l, err := link.Open(link.Options{Config: c, Replica: replica})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// exporter opens a replica of cluster a that exports the pool and has a hot prompt.
func exporter(t *testing.T, c *link.Config, replica string) *link.Link {
	t.Helper()
	l := open(t, c, replica)
	secret := l.View().Secret
	l.Hot(pool).Touch(secret.Chain("m", prompt, nil))
	l.SetExports([]federation.Export{{Pool: pool, Ready: []federation.Ready{{Model: "m", Count: 2}}}})
	return l
}

var prompt = make([]byte, 10*filter.ChunkBytes)

// await waits for a condition and fails with the last view.
func await(t *testing.T, what string, l *link.Link, ok func(*federation.View) bool) {
	t.Helper()
	testkit.Eventually(t, func() string {
		if !ok(l.View()) {
			return fmt.Sprintf("%s: %+v", what, *l.Status())
		}
		return ""
	})
}

func holds(v *federation.View) bool {
	list := v.Pool(pool, nil)
	return len(list) == 1 && list[0].Usable(time.Now()) && list[0].FilterNote == "" && list[0].Filter.Run(v.Secret.Chain("m", prompt, nil)) == 10
}

func silent(v *federation.View) bool { return v.Clusters[0].State == federation.Silent }
