package link_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/cluster/natsbus/embedded"
)

func trusted(name string, addresses ...string) link.PeerConfig {
	return link.PeerConfig{Name: name, Addresses: addresses, Export: []string{"ns/*"}, Accept: []string{"ns/*"}}
}

// TestTLS: two replicas of one cluster and one of another, over real sockets. Hot prefixes arrive.
// The cluster stays live when the asked replica dies, and becomes silent when both do.
func TestTLS(t *testing.T) {
	ca := fixture(t)
	replicas := map[string]*link.Link{}
	var addresses []string
	for _, name := range []string{"a-0", "a-1"} {
		replicas[name] = exporter(t, tlsConfig(ca, "a", trusted("b")), name)
		addresses = append(addresses, replicas[name].Addr().String())
	}
	b := open(t, tlsConfig(ca, "b", trusted("a", addresses...)), "b-0")
	await(t, "held there", b, holds)
	st := b.Status()
	if !strings.Contains(st.Line, "1 of 1 other cluster heard") || st.Clusters[0].RTTMS <= 0 || st.Clusters[0].Pools[0].Endpoints != 2 {
		t.Errorf("status: %+v", st)
	}
	first := b.View().Clusters[0].Replica
	if err := replicas[first].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "heard from the other replica", b, func(v *federation.View) bool {
		if c := v.Clusters[0]; !c.Pools[0].Usable(time.Now()) {
			t.Fatalf("silent although one of two replicas lives: %s", c.Reason)
		}
		return v.Clusters[0].Replica != first && holds(v)
	})
	if err := replicas[b.View().Clusters[0].Replica].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "silent", b, silent)
	if reason := b.View().Clusters[0].Reason; !strings.Contains(reason, "refused") && !strings.Contains(reason, "no answer") {
		t.Errorf("reason %q", reason)
	}
}

// TestOwnName: if another cluster has a copy of this one's file, or an address leads back here, the
// reason reports it.
func TestOwnName(t *testing.T) {
	ca := fixture(t)
	double := open(t, tlsConfig(ca, "a", trusted("b")), "a-1")
	a := open(t, tlsConfig(ca, "a", trusted("b", double.Addr().String())), "a-0")
	await(t, "named", a, func(v *federation.View) bool {
		return silent(v) && strings.Contains(v.Clusters[0].Reason, "this cluster's own name")
	})
	ca.issue(t, "c")
	third := open(t, tlsConfig(ca, "c", trusted("b")), "c-0")
	a = open(t, tlsConfig(ca, "a", trusted("b", third.Addr().String())), "a-2")
	await(t, "belongs to another", a, func(v *federation.View) bool {
		return strings.Contains(v.Clusters[0].Reason, "certificate belongs to another cluster")
	})
}

// TestNamesakes: two replica groups with one name and one certificate are reported.
func TestNamesakes(t *testing.T) {
	ca := fixture(t)
	a := exporter(t, tlsConfig(ca, "a", trusted("b")), "a-0")
	for i, of := range []uint64{5, 6} {
		b := open(t, tlsConfig(ca, "b", trusted("a", a.Addr().String())), "b-0")
		b.SetPrint(of)
		await(t, "heard", b, func(v *federation.View) bool { return v.Clusters[0].State == federation.Live })
		if v := a.View().Clusters[0]; i == 0 && v.Several {
			t.Errorf("one group: %+v", v)
		}
	}
	await(t, "named", a, func(v *federation.View) bool { return v.Clusters[0].Several })
	st := a.Status()
	if c := st.Clusters[0]; !c.Several || !strings.Contains(c.Reason, "several replica groups use this name") || !strings.Contains(st.Line, "several replica groups are named b") {
		t.Errorf("%+v", st)
	}
}

// TestUnknownPeers: a client without a certificate, with one of another CA, or with another name gets
// no data, and its data is not accepted.
func TestUnknownPeers(t *testing.T) {
	ca := fixture(t)
	a := exporter(t, tlsConfig(ca, "a", trusted("b")), "a-0")
	addr := a.Addr().String()

	other := newAuthority(t, t.TempDir(), "ca")
	other.issue(t, "b")
	write(t, filepath.Join(other.dir, "secret"), []byte("MDEyMzQ1Njc4OWFiY2RlZg=="))
	foreign := tlsConfig(other, "b", trusted("a", addr))
	await(t, "refused", open(t, foreign, "b-0"), func(v *federation.View) bool {
		return strings.Contains(v.Clusters[0].Reason, "unknown authority")
	})
	foreign.CAFile = filepath.Join(ca.dir, "ca.crt") // it accepts a, but a does not accept it
	await(t, "refused", open(t, foreign, "b-1"), func(v *federation.View) bool {
		return strings.Contains(v.Clusters[0].Reason, "tls: ")
	})

	ca.issue(t, "c")
	stranger := tlsConfig(ca, "c", trusted("a", addr))
	await(t, "refused", open(t, stranger, "c-0"), func(*federation.View) bool { return a.Status().Refused["stranger"] > 0 })

	wrong := trusted("a", addr)
	wrong.Certificate = "z"
	await(t, "refused", open(t, tlsConfig(ca, "b", wrong), "b-2"), func(v *federation.View) bool {
		return strings.Contains(v.Clusters[0].Reason, `want "z"`)
	})

	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	bare := &tls.Config{InsecureSkipVerify: true}
	if c, err := tls.Dial("tcp", addr, bare); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("client without a certificate received data")
		}
		c.Close()
	}
	await(t, "counted", a, func(*federation.View) bool { return a.Status().Refused["identity"] >= 3 })
	if n := a.Status().Clusters[0].Sessions; n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// TestNATS: the same over NATS, where the key of the pair authenticates. When a replica dies,
// another answers.
func TestNATS(t *testing.T) {
	ca := fixture(t)
	server, err := embedded.Start(embedded.Options{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	config := func(cluster, peer, key string) *link.Config {
		p := trusted(peer)
		p.KeyFile = filepath.Join(ca.dir, key)
		return &link.Config{
			Cluster: cluster, SecretFile: filepath.Join(ca.dir, "secret"), Lease: 5 * time.Second,
			NATS: &link.NATSConfig{URLs: []string{server.URL()}}, Peers: []link.PeerConfig{p},
		}
	}
	replicas := map[string]*link.Link{}
	for _, name := range []string{"a-0", "a-1"} {
		replicas[name] = exporter(t, config("a", "b", "pair"), name)
	}
	b := open(t, config("b", "a", "pair"), "b-0")
	await(t, "held there", b, holds)
	first := b.View().Clusters[0].Replica
	if err := replicas[first].Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "heard from the other replica", b, func(v *federation.View) bool {
		if c := v.Clusters[0]; !c.Pools[0].Usable(time.Now()) {
			t.Fatalf("silent although one of two replicas lives: %s", c.Reason)
		}
		return v.Clusters[0].Replica != first && holds(v)
	})
	liar := open(t, config("b", "a", "secret"), "b-1") // without the key of the pair
	survivor := replicas[b.View().Clusters[0].Replica]
	await(t, "refused", liar, func(v *federation.View) bool { return survivor.Status().Refused["key"] > 0 && silent(v) })
}

// TestMetrics: every metric is exported, and each cluster is in exactly one state.
func TestMetrics(t *testing.T) {
	ca := fixture(t)
	a := exporter(t, tlsConfig(ca, "a", trusted("b")), "a-0")
	reg := prometheus.NewPedanticRegistry()
	b, err := link.Open(link.Options{Config: tlsConfig(ca, "b", trusted("a", a.Addr().String())), Replica: "b-0", Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	await(t, "held there", b, holds)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	states := 0.0
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		for _, m := range f.GetMetric() {
			if f.GetName() == "grapevine_federation_cluster_state" {
				states += m.GetGauge().GetValue()
			}
		}
	}
	if states != 1 || !seen["grapevine_federation_bytes_total"] || !seen["grapevine_federation_filter_bytes"] {
		t.Errorf("%v states, metrics %v", states, seen)
	}
}

// TestBadStart: an invalid configuration fails at startup with the reason and leaves nothing
// running.
func TestBadStart(t *testing.T) {
	ca := fixture(t)
	for name, tc := range map[string]struct {
		change func(*link.Config)
		want   string
	}{
		"no certificate":   {func(c *link.Config) { c.CertFile += "x" }, "no such file"},
		"no secret":        {func(c *link.Config) { c.SecretFile += "x" }, "no such file"},
		"listener":         {func(c *link.Config) { c.Listen = "256.0.0.1:1" }, "256.0.0.1"},
		"one name for two": {func(c *link.Config) { c.Peers = append(c.Peers, link.PeerConfig{Name: "c", Certificate: "b"}) }, "same certificate name"},
	} {
		c := tlsConfig(ca, "a", trusted("b"))
		tc.change(c)
		if _, err := link.Open(link.Options{Config: c, Replica: "a-0"}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
