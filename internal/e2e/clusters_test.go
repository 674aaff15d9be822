package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/wan"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestClusters checks two clusters with engines, a replica and an Envoy each, joined by mutual TLS.
// B's gateway also uses TLS and is addressed by name. Prompts that are hot in B go to B if that
// pays; A's overload is shared; while the link is cut, A serves alone without a failed request;
// after the cut everything is as before. No engine receives a hop token or the choice of clusters,
// also after a failed try at B's gateway.
func TestClusters(t *testing.T) {
	dir := t.TempDir()
	if err := wan.Authorize(dir, "a", "b"); err != nil {
		t.Fatal(err)
	}
	b := openSite(t, dir, "b", envoyconf.Resilient, nil, nil)
	gateway, control := openWire(t, openTLS(t, dir, "b", b.envoy.Addr("inference"))), openWire(t, b.link.Addr().String())
	addr := gateway.Addr()
	b.gateway.Store(&addr)
	a := openSite(t, dir, "a", envoyconf.Resilient, toB(control.Addr()), []string{gateway.Addr()})
	knows := func(what string) { t.Helper(); a.sees("b", what) }
	knows("candidate")

	long, short := prompt("hot", 8000), prompt("brief", 20)
	b.must(long)
	visits(a, b, "hot before")
	sent := 0.0
	testkit.Await(t, "a short prompt stays at A, which is idle", func() bool {
		sent = a.metric("grapevine_elsewhere_sent_total")
		a.must(short)
		return a.metric("grapevine_elsewhere_sent_total") == sent
	})

	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { a.must(prompt(fmt.Sprint("load", i), 4000)) })
	}
	wg.Wait()
	if now := a.metric("grapevine_elsewhere_sent_total"); now == sent || now == sent+40 {
		t.Errorf("%v of 40 requests went to B while A was overloaded", now-sent)
	}

	gateway.Cut()
	leaves(a, b, "hot in between", func() float64 { return a.metric("grapevine_elsewhere_sent_total") }) // A's engines serve it after a failed try at B
	control.Cut()
	for range 3 {
		a.must(long) // B is tried, then A's engine has it cached
	}
	knows("silent")
	a.must(long)
	heal(t, gateway, control)
	knows("candidate")
	visits(a, b, "hot afterwards")
	if n := b.metric("grapevine_elsewhere_sent_total") + b.metric("grapevine_elsewhere_bad_hops_total"); n != 0 {
		t.Errorf("B sent on, or did not believe, %v requests", n)
	}
	for _, s := range []*site{a, b} {
		s.headers.Range(func(key, _ any) bool {
			t.Errorf("an engine of %s received %s", s.name, key)
			return true
		})
	}
	a.settle()
	b.settle()
}

// toB are the peers of A.
func toB(control string) []link.PeerConfig {
	return []link.PeerConfig{{Name: "b", Addresses: []string{control}, Accept: []string{"ns/*"}, Export: []string{"ns/*"}}}
}

// sees waits until the cluster's status has a result for another cluster.
func (s *site) sees(cluster, result string) {
	s.t.Helper()
	testkit.Await(s.t, s.name+" sees "+cluster+" as "+result, func() bool {
		for _, c := range s.servers[0].Status().RemoteClusters {
			if c.Cluster == cluster && c.Result == result {
				return true
			}
		}
		return false
	})
}

// refuser is a gateway that answers with a status itself, unless the status is 0.
type refuser struct {
	status, refused atomic.Int64
	next            http.Handler
}

func (h *refuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code := h.status.Load(); code > 0 {
		h.refused.Add(1)
		http.Error(w, "no room", int(code))
		return
	}
	h.next.ServeHTTP(w, r)
}

// TestRemoteRefusals: if another cluster refuses a request with 429 or 503, Envoy sends it to an engine here.
// No client receives the refusal, with both configurations.
func TestRemoteRefusals(t *testing.T) {
	for _, tc := range []struct {
		kind   envoyconf.Kind
		status int64
	}{{envoyconf.Resilient, 429}, {envoyconf.Resilient, 503}, {envoyconf.Gateway, 429}} {
		t.Run(fmt.Sprint(tc.kind, " ", tc.status), func(t *testing.T) {
			dir := t.TempDir()
			if err := wan.Authorize(dir, "a", "b"); err != nil {
				t.Fatal(err)
			}
			b := openSite(t, dir, "b", envoyconf.Resilient, nil, nil)
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: b.envoy.Addr("inference")})
			proxy.Transport = once.Transport
			h := &refuser{next: proxy}
			front := httptest.NewServer(h)
			t.Cleanup(front.Close)
			gateway := openTLS(t, dir, "b", front.Listener.Addr().String())
			b.gateway.Store(&gateway)
			a := openSite(t, dir, "a", tc.kind, toB(b.link.Addr().String()), []string{gateway})
			a.sees("b", "candidate")
			h.status.Store(tc.status)
			leaves(a, b, "refused", func() float64 { return float64(h.refused.Load()) })
			a.settle()
			b.settle()
		})
	}
}

// visits waits until B serves a prompt of A's users.
func visits(a, b *site, seed string) {
	a.t.Helper()
	leaves(a, b, seed, func() float64 { return b.metric("grapevine_elsewhere_hopped_total") })
}

// leaves waits until A sends B a prompt that B's own users have sent, after A has B's hot prefixes.
// count is the number of such prompts. Each attempt uses another prompt, because A caches the prompts
// that it serves itself.
func leaves(a, b *site, seed string, count func() float64) {
	a.t.Helper()
	try := 0
	testkit.Await(a.t, "a prompt that is hot in B goes there", func() bool {
		try++
		text, known, before := prompt(fmt.Sprint(seed, try), 4000), a.heard(), count()
		b.must(text)
		testkit.Await(a.t, "A has heard of the prompt", func() bool { return a.heard() > known })
		a.must(text)
		return count() > before
	})
}

// heard returns the number of prompt blocks that the cluster lists as hot in other clusters.
func (s *site) heard() (n int) {
	for _, c := range s.link.View().Clusters {
		for _, p := range c.Pools {
			n += int(p.FilterHead.Blocks)
		}
	}
	return n
}

// site is one cluster.
type site struct {
	*rig
	name    string
	link    *link.Link
	gateway atomic.Pointer[string]
	headers sync.Map // headers for gateways that engines received, with their values
}

// received records headers that engines must not receive.
func (s *site) received(h http.Header) {
	for _, name := range []string{request.HeaderHop, request.HeaderClusters} {
		if v := h.Get(name); v != "" {
			s.headers.Store(name+": "+v, true)
		}
	}
}

// openSite opens a cluster whose pickers may send requests to the given gateways.
func openSite(t *testing.T, dir, name string, kind envoyconf.Kind, peers []link.PeerConfig, gateways []string) *site {
	t.Helper()
	s := &site{rig: begin(t), name: name}
	at := func(file string) string { return filepath.Join(dir, file) }
	c := &link.Config{
		Cluster: name, Listen: "127.0.0.1:0", CertFile: at(name + ".crt"), KeyFile: at(name + ".key"), CAFile: at(wan.CAFile), SecretFile: at(wan.SecretFile),
		Lease: 2 * time.Second, Peers: peers,
	}
	if peers == nil {
		c.Peers = []link.PeerConfig{{Name: "a", Export: []string{"ns/*"}, Accept: []string{"ns/*"}}}
	}
	if gateways != nil {
		s.begin = math.MaxInt // the first site ends last and checks goroutines for both
	}
	var err error
	if s.link, err = link.Open(link.Options{Config: c, Replica: name + "-1"}); err != nil {
		t.Fatal(err)
	}
	pool := federation.PoolKey{Namespace: "ns", Name: "pool"}
	s.openFleet(rigOptions{engines: 2, engine: sim.Options{Speed: 1, OnRequest: s.received}})
	s.openReplica(func(o *server.Options) {
		o.Name = name + "-1"
		o.Federation = multicluster.Options{
			Use: remotecluster.Options{Self: name, Pool: pool, Use: remotecluster.UseAlways}, Read: s.link.View, Secret: s.link.View().Secret, Hot: func(by *filter.Secret) *filter.Hot { return s.link.HotSet(pool, by) },
			Base: federation.Export{Pool: pool},
			Write: func(e federation.Export) {
				if g := s.gateway.Load(); g != nil {
					e.Gateways = []federation.Address{{HostPort: *g}}
				}
				s.link.SetExports([]federation.Export{e})
			},
		}
	})
	s.openEnvoy(rigOptions{kind: kind, params: func(p *envoyconf.Params) {
		if p.Gateways = gateways; gateways != nil {
			p.GatewaySNI, p.GatewayCA = peers[0].Name, at(wan.CAFile)
		}
	}})
	t.Cleanup(s.close)
	t.Cleanup(func() {
		if err := s.link.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func prompt(seed string, tokens int) string { return strings.Repeat(seed+" ", tokens) }

// once keeps no connections open, because each needs a goroutine.
var once = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// must sends a request to the cluster's gateway and fails without an answer.
func (s *site) must(text string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"model": vocab.Name, "prompt": text, "max_tokens": 2})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, "http://"+s.envoy.Addr("inference")+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(request.HeaderClusters, "*")
	resp, err := once.Do(r)
	if err != nil {
		s.t.Errorf("%s: %v", s.name, err)
		return
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || err != nil {
		s.t.Errorf("%s answered %d (%v): %.200s", s.name, resp.StatusCode, err, answer)
	}
}

// metric returns one of the replica's metrics.
func (s *site) metric(name string) float64 {
	s.t.Helper()
	resp, err := once.Get("http://" + s.servers[0].AdminAddr().String() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v
		}
	}
	s.t.Fatalf("%s has no metric %s", s.name, name)
	return 0
}

// openTLS opens a TLS gateway in front of an address. It accepts only connections for the cluster's
// name.
func openTLS(t *testing.T, dir, name, to string) string {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName != name {
			return nil, fmt.Errorf("asked for %q", h.ServerName)
		}
		return &cert, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var carried sync.WaitGroup
	t.Cleanup(carried.Wait)
	t.Cleanup(func() { lis.Close() })
	carried.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{c, there}, {there, c}} {
				carried.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	return lis.Addr().String()
}

// openWire opens a link to an address.
func openWire(t *testing.T, to string) *wan.Wire {
	t.Helper()
	w, err := wan.Open("127.0.0.1:0", func() string { return to }, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func heal(t *testing.T, wires ...*wan.Wire) {
	t.Helper()
	for _, w := range wires {
		if err := w.Heal(); err != nil {
			t.Fatal(err)
		}
	}
}
