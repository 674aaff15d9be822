package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestFederationSecret rotates the secret of two clusters over mutual TLS, step by step and one
// cluster after the other, while requests continue. At every step a sends prompts cached only in b
// to b, and b accepts them as requests from a member.
func TestFederationSecret(t *testing.T) {
	dir := t.TempDir()
	if err := wan.Authorize(dir, "a", "b"); err != nil {
		t.Fatal(err)
	}
	before, next := secretLine("the secret before"), secretLine("the secret after it")
	put := func(cluster string, lines ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, cluster+".secret"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	join := func(self, other string, use remotecluster.Use, addresses ...string) *Server {
		t.Helper()
		put(self, before)
		at := func(file string) string { return filepath.Join(dir, file) }
		all := []string{"default/*"}
		_, o := options(t, fleet.Options{Engines: 4})
		o.Name = self + "-0"
		o.Federation.Link = &link.Config{
			Cluster: self, Listen: parts.FreeAddress(t), CertFile: at(self + ".crt"), KeyFile: at(self + ".key"), CAFile: at(wan.CAFile), SecretFile: at(self + ".secret"),
			Lease: 20 * time.Second, Exports: []link.ExportConfig{{Pool: fedPool.String(), Gateways: []link.AddressConfig{{Address: gatewayOf[self]}}}},
			Peers: []link.PeerConfig{{Name: other, Addresses: addresses, Export: all, Accept: all}},
		}
		o.Federation.Use = remotecluster.Options{Self: self, Pool: fedPool, Use: use}
		return open(t, o)
	}
	b := join("b", "a", remotecluster.UseNever)
	a := join("a", "b", remotecluster.UseAlways, b.o.Federation.Link.Listen)
	m := &moved{t: t, a: a, b: b}
	m.learn("")
	first := a.Status().Federation.Secrets[0]

	// exchange gives a cluster new secrets while requests continue.
	exchange := func(s *Server, lines ...string) {
		t.Helper()
		m.traffic(10)
		put(s.o.Federation.Link.Cluster, lines...)
		reloaded := make(chan error, 1)
		go func() { reloaded <- s.Reload(t.Context()) }()
		m.traffic(10)
		if err := <-reloaded; err != nil {
			t.Error(err)
		}
		m.traffic(10)
		testkit.Await(t, "decisions know the secrets", func() bool { return len(s.Status().Federation.Secrets) == len(lines) })
	}
	exchange(a, before, next)
	exchange(b, before, next)
	m.learn("") // both filters record the prompts from here on
	exchange(b, next, before)
	m.learn(first)
	exchange(a, next, before)
	exchange(b, next)
	put("a", next)
	testkit.Await(t, "the file is read again by itself", func() bool { return len(a.Status().Federation.Secrets) == 1 })
	m.traffic(30)
	if now := a.Status().Federation.Secrets; now[0] == first || now[0] != b.Status().Federation.Secrets[0] {
		t.Errorf("secrets of a %v and b %v, before %s", now, b.Status().Federation.Secrets, first)
	}

	put("b", "no base64")
	if err := b.Reload(t.Context()); err == nil {
		t.Error("a file that is no secret is taken")
	}
	if st := b.Status().Federation; st.Problem == "" || !strings.Contains(st.Line, "secrets cannot be read") {
		t.Errorf("status does not tell: %+v", st)
	}
	m.traffic(5)
	if bad := counted(t, b, "grapevine_elsewhere_bad_hops_total"); bad != 0 {
		t.Errorf("%v tokens were not taken by b", bad)
	}
	if n := counted(t, b, "grapevine_elsewhere_hopped_total"); n != float64(m.next) {
		t.Errorf("b counts %v requests of members, %d were sent", n, m.next)
	}
}

var gatewayOf = map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}

func secretLine(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// moved sends prompts that are cached only in b to a, each prompt once.
type moved struct {
	t    *testing.T
	a, b *Server
	next int
}

const movedPrompts = 220

func (m *moved) request(i int) *request.Request {
	m.t.Helper()
	text := strings.Repeat(fmt.Sprintf("prompt %d that only b has been asked, ", i), 500)
	r := &request.Request{ID: fmt.Sprint("r", i), Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","max_tokens":4,"prompt":"` + text + `"}`)}
	if err := request.Parse(r); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// warm sends all prompts to b.
func (m *moved) warm() {
	m.t.Helper()
	for i := range movedPrompts {
		d, err := m.b.chooser.Choose(m.t.Context(), m.request(i))
		if err != nil {
			m.t.Fatal(err)
		}
		d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
	}
}

// learn waits until a has the complete filter of b. b drops some of many simultaneous prompts from
// its hot set, so learn sends the prompts to b again if blocks are missing.
func (m *moved) learn(not string) {
	m.t.Helper()
	m.warm()
	testkit.Eventually(m.t, func() string {
		why := m.unknown(not)
		if strings.Contains(why, "blocks") {
			m.warm()
		}
		return why
	})
}

// unknown returns which part of b's filter is missing in a, or "". The filter must not be made with
// the secret not.
func (m *moved) unknown(not string) string {
	st := m.a.Status().Federation
	if len(st.Clusters[0].Pools) != 1 || len(m.a.Status().RemoteClusters) != 1 {
		return "no pool of b: " + st.Clusters[0].Reason
	}
	if rtt := st.Clusters[0].RTTMS; rtt <= 0 || rtt > 20 { // an unmeasured RTT counts as long, and its cost keeps prompts here
		return fmt.Sprintf("b is %v ms away", rtt)
	}
	p := &st.Clusters[0].Pools[0]
	blocks := 0
	for i := range movedPrompts {
		blocks += len(m.request(i).Chunks.Bytes) / filter.ChunkBytes
	}
	if p.Requests > 0 { // load that b reported up to a beat ago keeps prompts here
		return fmt.Sprintf("b is said to have %d requests", p.Requests)
	}
	if p.Filter != "" || p.Blocks < blocks || p.Secret == not {
		return fmt.Sprintf("%d of %d blocks, by secret %s: %s", p.Blocks, blocks, p.Secret, p.Filter)
	}
	for i := m.next; i < movedPrompts; i++ { // decisions use a received filter slightly later
		e, err := m.a.scheduler.Explain(m.t.Context(), m.request(i))
		if err != nil || !slices.ContainsFunc(e.Clusters, func(c explanation.Cluster) bool { return c.Cluster == "b" && c.Held > 0 }) {
			return fmt.Sprintf("decisions about prompt %d do not know that b holds it: %v, %+v", i, err, e.Clusters)
		}
	}
	return ""
}

// traffic sends the next prompts to a, one after the other, and then to b, their destination.
func (m *moved) traffic(n int) {
	for range n {
		i := m.next
		m.next++
		d, err := m.a.chooser.Choose(m.t.Context(), m.request(i))
		if err != nil {
			m.t.Errorf("prompt %d: %v", i, err)
			return
		}
		if d.Endpoints[0] != gatewayOf["b"] {
			m.t.Errorf("prompt %d goes to %v though b holds it: %+v", i, d.Endpoints, m.a.Status().Federation.Clusters)
		}
		far, header := m.request(i), http.Header{}
		for _, h := range d.SetHeaders {
			header.Set(h.Name, h.Value)
		}
		far.Headers = header
		there, err := m.b.chooser.Choose(m.t.Context(), far)
		if err != nil {
			m.t.Errorf("prompt %d at b: %v", i, err)
			return
		}
		there.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true, Served: there.Endpoints[0]})
		d.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true, Served: d.Endpoints[0]})
	}
}

// counted returns the value of a counter.
func counted(t *testing.T, s *Server, name string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
