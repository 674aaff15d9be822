package server

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// engines opens more engines, which are closed with the test.
func (g *group) engines(o fleet.Options) *fleet.Fleet {
	g.t.Helper()
	o.Engine = sim.Options{Core: engine.Config{BlockSize: g.page, Blocks: groupBlocks}, Speed: math.Inf(1), Events: &sim.EventOptions{Ring: 10000}}
	f, err := fleet.Open(o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { f.Close() })
	return f
}

// listed waits until all replicas have just the engines of a fleet.
func (g *group) listed(f *fleet.Fleet) {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		for _, s := range append(g.replicas, g.alone) {
			snap := s.pool.Snapshot()
			if len(snap.Endpoints) != len(f.Engines()) {
				return fmt.Sprintf("%s has %d endpoints, not %d", s.o.Name, len(snap.Endpoints), len(f.Engines()))
			}
			for _, e := range f.Engines() {
				if snap.Lookup(e.Addr()) == nil {
					return s.o.Name + " lacks " + e.Addr()
				}
			}
		}
		return ""
	})
}

// TestAllReplaced replaces 200 endpoints by 200 others at once, as when a pool moves to another
// node group. Each stream then has one reader, all replicas index the new engines, and no state of
// the old engines remains.
func TestAllReplaced(t *testing.T) {
	parts.Full(t)
	many, replicas := 200, 3
	if testkit.Raced { // 200 did not end within nine minutes on two busy cores
		many, replicas = 50, 2
	}
	g := newGroupWith(t, replicas, 10000, group{share: "partitioned", change: func(o *Options) {
		o.Keep, o.ScrapeFast, o.ScrapeSlow = -1, 2*time.Second, 5*time.Second // gauges of 200 endpoints take a core
	}})
	for range 2 {
		f := g.engines(fleet.Options{Engines: many})
		if err := f.WriteEndpoints(filepath.Join(g.dir, "endpoints.yaml")); err != nil {
			t.Fatal(err)
		}
		g.fleet = f
		for i := range many { // while the replicas find out
			g.ask(i, strings.Repeat(fmt.Sprintf("word%d of the prompt ", i), 20))
		}
		g.listed(f)
		g.agree(g.replicas...)
		testkit.Eventually(g.t, func() string {
			total := 0
			for _, s := range g.replicas {
				if n := len(s.share.Sources()); n != many || count(s, "shared") != many {
					return fmt.Sprintf("%s has %d sources, %d of them shared", s.o.Name, n, count(s, "shared"))
				}
				if h := s.node.Status().Health; h.State != "joined" || !strings.HasSuffix(h.Line, "all reachable, digests equal") {
					return s.o.Name + " says " + h.Line
				}
				total += reading(s)
			}
			if total != many {
				return fmt.Sprintf("%d streams are read", total)
			}
			return ""
		})
		for at, c := range contents(g.replicas[0]) {
			if c.count == 0 {
				t.Errorf("nothing is known of %s", at)
			}
		}
		g.agree(g.replicas...)
	}
}

// TestEngineMoves gives an engine another address and keeps its name and ports. The new address is
// another endpoint. It starts without state of the old endpoint. Requests already sent to the old
// endpoint never count for the new one. Blocks that it stores are shared.
func TestEngineMoves(t *testing.T) {
	g := newGroupWith(t, 2, 10000, group{share: "partitioned", change: func(o *Options) { o.Keep = -1 }})
	g.churn(60)
	g.agree(g.replicas...)
	old := g.fleet.Engines()[0].Addr()
	if c := contents(g.replicas[0])[old]; c.count == 0 {
		t.Fatal("the engine held nothing")
	}
	tickets := make([]endpoint.Ticket, len(g.replicas))
	for i, s := range g.replicas {
		s.pool.LoadTracker().Open(&tickets[i], s.pool.Snapshot().Lookup(old), endpoint.Work{Input: 100, New: 100}, time.Now())
	}
	_, port, _ := net.SplitHostPort(old)
	number, _ := strconv.Atoi(port)
	moved := g.engines(fleet.Options{Engines: 1, Host: "127.0.0.77", Port: number})
	raw, err := yaml.Marshal(map[string]any{"endpoints": append(moved.Endpoints(), g.fleet.Endpoints()[1:]...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "endpoints.yaml"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	at := moved.Engines()[0].Addr()
	testkit.Eventually(g.t, func() string {
		for _, s := range append(g.replicas, g.alone) {
			snap := s.pool.Snapshot()
			if snap.Lookup(old) != nil || snap.Lookup(at) == nil || len(snap.Endpoints) != groupEngines {
				return fmt.Sprintf("%s has %d endpoints, the old one: %v, the new one: %v", s.o.Name, len(snap.Endpoints), snap.Lookup(old) != nil, snap.Lookup(at) != nil)
			}
		}
		return ""
	})
	nothing := func(when string) {
		t.Helper()
		for _, s := range g.replicas {
			if l := s.pool.LoadTracker().Load(s.pool.Snapshot().Lookup(at), time.Now()); l.Requests != 0 {
				t.Errorf("%s, %s: %+v", s.o.Name, when, l)
			}
			if c := contents(s)[at]; c.count > 0 {
				t.Errorf("%s, %s: has %v for it", s.o.Name, when, c)
			}
		}
	}
	nothing("moved")
	g.agree(g.replicas...)
	for i := range tickets {
		tickets[i].Release()
	}
	nothing("requests to the old address have ended")
	was := g.fleet
	g.fleet = moved
	g.ask(0, strings.Repeat("words of a prompt ", 60))
	testkit.Eventually(g.t, func() string {
		for _, s := range g.replicas {
			if contents(s)[at].count == 0 {
				return s.o.Name + " knows nothing of it"
			}
		}
		return ""
	})
	g.agree(g.replicas...)
	g.fleet = was
	g.agree(g.replicas...)
}
