package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// group is a fleet of engines and the replicas that follow it. alone is a replica without shared
// state that has read everything from the start; it is the reference.
type group struct {
	t        *testing.T
	dir      string
	fleet    *fleet.Fleet
	alone    *Server
	replicas []*Server
	join     []string
	share    string
	nats     []string   // servers; none for gossip
	xds      XDSOptions // of the replicas
	page     int        // tokens of a block; 16 when 0
	unnamed  bool       // the engines do not say when they started
	replay   string     // where they replay; "" for any free port
	change   func(*Options)
	rng      *rand.Rand
	prompts  []string
}

const (
	groupEngines = 4
	groupBlocks  = 600 // of each engine's cache
)

// newGroup starts n replicas, and engines with a replay ring of ring batches.
func newGroup(t *testing.T, n, ring int, share string) *group {
	t.Helper()
	return newGroupWith(t, n, ring, group{share: share})
}

func newGroupWith(t *testing.T, n, ring int, with group) *group {
	t.Helper()
	g := &with
	g.t, g.dir, g.rng = t, t.TempDir(), rand.New(rand.NewPCG(1, 2))
	g.page = cmp.Or(g.page, 16)
	var err error
	if g.fleet, err = fleet.Open(fleet.Options{
		Engines: groupEngines, EndpointsFile: filepath.Join(g.dir, "endpoints.yaml"),
		Engine: sim.Options{
			Core: engine.Config{BlockSize: g.page, Blocks: groupBlocks * 16 / g.page}, Speed: math.Inf(1), Events: &sim.EventOptions{Ring: ring, Replay: g.replay},
			NoProcessMetrics: g.unnamed,
		},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.fleet.Close() })
	if err := vocab.New().WriteModel(filepath.Join(g.dir, "model")); err != nil {
		t.Fatal(err)
	}
	g.alone = g.open("alone", ClusterOptions{})
	for range n {
		g.add()
	}
	if g.replay != sim.ReplayOff { // without it nothing is known for sure
		g.ready(append(g.replicas, g.alone)...)
	}
	return g
}

func (g *group) open(name string, c ClusterOptions) *Server {
	g.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() && os.Getenv("SHARE_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", name)
	}
	o := Options{
		Name: name, XDS: g.xds, Listen: "127.0.0.1:0", Health: "-", Admin: "127.0.0.1:0", Endpoints: filepath.Join(g.dir, "endpoints.yaml"),
		Models: []ModelOptions{{Name: vocab.Name, Path: filepath.Join(g.dir, "model")}}, Cluster: c, Log: log, Secret: "s",
	}
	if g.change != nil {
		g.change(&o)
	}
	s, err := Open(o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { g.stop(s) })
	return s
}

func (g *group) stop(s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once
	_ = s.Stop(ctx)
}

// add starts one more replica.
func (g *group) add() *Server {
	g.t.Helper()
	at := parts.FreeAddress(g.t)
	c := ClusterOptions{
		Mode: "gossip", Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Bind: at, StreamBind: "127.0.0.1:0", Join: g.join, Share: g.share,
	}
	if len(g.nats) > 0 {
		c = ClusterOptions{Mode: "nats", NATS: g.nats, Label: "test", Keys: c.Keys, Share: g.share}
	}
	s := g.open(fmt.Sprintf("replica-%d", len(g.replicas)), c)
	g.join = append(g.join, at)
	g.replicas = append(g.replicas, s)
	return s
}

func (g *group) ready(all ...*Server) {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		for _, s := range all {
			if !s.stage.settled.Load() || s.knowledge.pending() > 0 {
				return describe(s)
			}
		}
		return ""
	})
}

// churn sends n prompts to the engines. Half are known prompts, so blocks are shared; the others
// are new, so blocks are evicted.
func (g *group) churn(n int) {
	g.t.Helper()
	for range n {
		var prompt string
		if len(g.prompts) > 0 && g.rng.IntN(2) == 0 {
			prompt = g.prompts[g.rng.IntN(len(g.prompts))] + " and more"
		} else {
			prompt = strings.Repeat(fmt.Sprintf("word%d of the prompt ", g.rng.IntN(1e6)), 10+g.rng.IntN(60))
		}
		g.prompts = append(g.prompts, prompt)
		g.ask(g.rng.IntN(groupEngines), prompt)
	}
}

func (g *group) ask(i int, prompt string) {
	g.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":4}`, vocab.Name, prompt)
	resp, err := http.Post("http://"+g.fleet.Engines()[i].Addr()+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		g.t.Fatalf("engine answers %d: %s", resp.StatusCode, b)
	}
}

type content struct{ count, xor uint64 }

// contents returns the digests of a replica's index by endpoint.
func contents(s *Server) map[string]content {
	out := map[string]content{}
	for _, ep := range s.pool.Snapshot().Endpoints {
		n, xor := s.index.Digest(block.Source{Endpoint: ep.ID})
		out[ep.Address] = content{n, xor}
	}
	return out
}

// late returns the engines whose reference index is at another position than the engine: behind it,
// or in an earlier incarnation.
func (g *group) late() string {
	at := map[string]*endpoint.Endpoint{}
	for _, ep := range g.alone.pool.Snapshot().Endpoints {
		at[ep.Address] = ep
	}
	for _, e := range g.fleet.Engines() {
		ep, stats := at[e.Addr()], e.Stats()
		if ep == nil || len(stats) == 0 {
			continue
		}
		if p, _ := g.alone.share.Followed(block.Source{Endpoint: ep.ID}); p.Seq != stats[0].Events.NextSeq {
			return fmt.Sprintf("the truth is at batch %d of %d of %s", p.Seq, stats[0].Events.NextSeq, e.Addr())
		}
	}
	return ""
}

// agree waits until all replicas have exactly the content of the reference index.
func (g *group) agree(all ...*Server) {
	g.t.Helper()
	testkit.Eventually(g.t, func() string {
		if late := g.late(); late != "" {
			return late
		}
		want := contents(g.alone)
		for _, s := range all {
			got := contents(s)
			for _, ep := range s.pool.Snapshot().Endpoints {
				k := s.share.Knowledge(ep.ID)
				if got[ep.Address] != want[ep.Address] || k.State != knowledge.Exact || !s.prefixes.IndexAccepted(ep.ID) {
					return fmt.Sprintf("%s: %s is %v with %v, want %v; %s", s.o.Name, ep.Address, k.State, got[ep.Address], want[ep.Address], describe(s))
				}
			}
		}
		return ""
	})
}

// describe returns a summary of a replica's log for failure messages.
func describe(s *Server) string {
	out := s.node.Status().Health.Line
	for _, src := range s.share.Sources() {
		out += fmt.Sprintf("\n  %+v", src)
	}
	return out
}

// reading counts the streams that a replica reads.
func reading(s *Server) (n int) {
	n, _ = s.share.StreamsRead()
	return n
}

// count returns how many streams are in a mode.
func count(s *Server, mode string) (n int) {
	for _, src := range s.share.Sources() {
		if src.Mode == mode {
			n++
		}
	}
	return n
}

func TestMeshAgrees(t *testing.T) {
	g := newGroup(t, 3, 10000, "mesh")
	g.churn(150)
	g.agree(g.replicas...)
	for _, s := range g.replicas {
		testkit.Eventually(g.t, func() string {
			if n := reading(s); n != groupEngines {
				return fmt.Sprintf("%s reads %d streams", s.o.Name, n)
			}
			for _, p := range s.node.Status().Peers {
				for _, l := range p.Logs {
					if l.Differ > 0 {
						return fmt.Sprintf("%s: %d digests differ from %s", s.o.Name, l.Differ, p.Name)
					}
				}
			}
			return ""
		})
	}
}

// A new replica gets blocks that no engine can replay any more.
func TestNewcomerKnows(t *testing.T) {
	for _, share := range []string{"mesh", "partitioned"} {
		t.Run(share, func(t *testing.T) {
			g := newGroup(t, 2, 8, share)
			g.churn(120)
			g.agree(g.replicas...)
			late := g.add()
			g.ready(late)
			g.agree(late)
			g.churn(40)
			g.agree(g.replicas...)
			for _, ep := range late.pool.Snapshot().Endpoints {
				if !late.share.Knowledge(ep.ID).Complete {
					t.Errorf("%s is not known since it was empty", ep.Address)
				}
			}
		})
	}
}

// Each stream has one replica as reader; when it dies, another continues at its position.
func TestOwnerDies(t *testing.T) {
	g := newGroup(t, 3, 10000, "partitioned")
	victim := g.replicas[0]
	testkit.Eventually(g.t, func() string {
		total := 0
		for _, s := range g.replicas {
			total += reading(s)
			if reading(s) > reading(victim) {
				victim = s
			}
		}
		if total != groupEngines {
			return fmt.Sprintf("%d streams are read, of %d", total, groupEngines)
		}
		return ""
	})
	g.churn(60)
	g.agree(g.replicas...)
	g.stop(victim) // without any announcement
	var rest []*Server
	for _, s := range g.replicas {
		if s != victim {
			rest = append(rest, s)
		}
	}
	g.churn(60)
	g.agree(rest...)
	testkit.Eventually(g.t, func() string {
		for _, s := range rest {
			if st := s.node.Status(); st.Logs[0].Approximate > 0 {
				return fmt.Sprintf("%s lost something: %+v", s.o.Name, st.Logs)
			}
		}
		return ""
	})
}

func TestEngineRestarts(t *testing.T) {
	for _, share := range []string{"mesh", "partitioned"} {
		t.Run(share, func(t *testing.T) {
			g := newGroup(t, 3, 10000, share)
			g.churn(60)
			g.agree(g.replicas...)
			e := g.fleet.Engines()[0]
			if err := e.Restart(sim.RestartOptions{}); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(g.t, func() string {
				for _, s := range append(g.replicas, g.alone) {
					if c := contents(s)[e.Addr()]; c.count > 0 {
						return fmt.Sprintf("%s: %v", s.o.Name, c)
					}
				}
				return ""
			})
			g.churn(60)
			g.agree(g.replicas...)
		})
	}
}

// The replica that detects incorrect content reads the stream again from the beginning, and all
// members apply the result.
func TestIncorrectContentIsReread(t *testing.T) {
	for _, share := range []string{"mesh", "partitioned"} {
		t.Run(share, func(t *testing.T) {
			g := newGroup(t, 3, 10000, share)
			g.churn(40)
			g.agree(g.replicas...)
			s := g.replicas[1]
			before := map[string]uint64{}
			for _, src := range s.share.Sources() {
				before[src.Name] = src.Log.Position.Inc
			}
			for _, ep := range s.pool.Snapshot().Endpoints {
				s.share.Invalidate(ep.ID)
			}
			testkit.Eventually(g.t, func() string {
				for _, s := range g.replicas {
					for _, src := range s.share.Sources() {
						if src.Log.Position.Inc <= before[src.Name] || src.Mode != "shared" {
							return fmt.Sprintf("%s: %+v", s.o.Name, src)
						}
					}
				}
				return ""
			})
			g.churn(40)
			g.agree(g.replicas...)
		})
	}
}

// Endpoints are added and removed while replicas share.
func TestEndpointsChange(t *testing.T) {
	g := newGroup(t, 2, 10000, "partitioned")
	g.churn(40)
	g.agree(g.replicas...)
	path := filepath.Join(g.dir, "endpoints.yaml")
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have := func(n int) func() string {
		return func() string {
			for _, s := range append(g.replicas, g.alone) {
				if got := len(s.pool.Snapshot().Endpoints); got != n {
					return fmt.Sprintf("%s: %d", s.o.Name, got)
				}
			}
			return ""
		}
	}
	one, err := fleet.Open(fleet.Options{Engines: 1, EndpointsFile: path, Engine: sim.Options{Speed: math.Inf(1), Events: &sim.EventOptions{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	testkit.Eventually(g.t, have(1))
	g.agree(g.replicas...)
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(g.t, have(groupEngines))
	g.churn(20)
	g.agree(g.replicas...)
}
