package link_test

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/federation"
)

// TestOneFloods: a cluster that makes ever more connections gets no more than its share, and
// another one is answered as before.
func TestOneFloods(t *testing.T) {
	ca := fixture(t)
	ca.issue(t, "c")
	a := exporter(t, tlsConfig(ca, "a", trusted("b"), trusted("c")), "a-0")
	pair, err := tls.LoadX509KeyPair(filepath.Join(ca.dir, "c.crt"), filepath.Join(ca.dir, "c.key"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"grapevine-federation/1"}}
	for range 128 + 16 {
		c, err := tls.Dial("tcp", a.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, "refused", a, func(*federation.View) bool { return a.Status().Refused["connections"] >= 16 })
	b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
	await(t, "held there", b, holds)
	if n := a.Status().Refused["connections"]; n != 16 {
		t.Errorf("%d connections were refused, want 16", n)
	}
}
