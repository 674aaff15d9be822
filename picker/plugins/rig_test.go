package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

var t0 = time.Unix(1_700_000_000, 0)

// one describes one endpoint of a scripted fleet.
type one struct {
	load   endpoint.Load
	gauges *endpoint.Gauges // At zero means now
	held   int32            // tokens of every prompt, on the device
	tiers  *[block.NumTiers]int32
	labels map[string]string
	cost   *endpoint.Cost // learned, or assumed if nothing was seen
}

// fleet is a scripted pool that matches by script.
type fleet struct {
	pool     *endpoint.Pool
	list     []one
	sessions *sessions.Table
	seed     uint64
	match    cycle.Match // Match, bound once: it allocates
}

func newFleet(list ...one) *fleet {
	f := &fleet{pool: endpoint.NewPool(endpoint.PoolOptions{}), list: list, sessions: sessions.New(0), seed: 1}
	f.match = f.Match
	specs := make([]endpoint.Spec, len(list))
	for i, e := range list {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		specs[i] = endpoint.Spec{Name: fmt.Sprint("e", i), Namespace: "ns", Addr: addr, Labels: e.labels}
	}
	f.pool.Set(specs)
	for i, ep := range f.pool.Snapshot().Endpoints {
		f.pool.LoadTracker().SetRemote(ep, list[i].load)
		if g := list[i].gauges; g != nil {
			if g.At.IsZero() {
				g.At = t0
			}
			ep.SetGauges(*g)
		}
		if c := list[i].cost; c != nil && c.PrefillSeen > 0 {
			ep.SetRemoteCost(*c)
		} else if c != nil {
			ep.SetPriorCost(*c)
		}
	}
	return f
}

func (f *fleet) Match(_ context.Context, _ *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for k, ep := range eps {
		e, run := &f.list[ep.ID], &held[k].Run
		if e.tiers == nil {
			run.Tokens[block.TierGPU], run.Blocks = e.held, e.held/16
			continue
		}
		run.Tokens = *e.tiers
		run.Blocks = run.Total() / 16
	}
}
func (f *fleet) Chosen(*request.Request, *endpoint.Endpoint)                                       {}
func (f *fleet) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {}

func (f *fleet) cycle(r *request.Request) *cycle.Cycle {
	f.seed++
	return cycle.New(cycle.Options{Pool: f.pool, Match: f.match, Sessions: f.sessions, Now: t0, Seed: f.seed}, r)
}

func ask(tokens int) *request.Request {
	return &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: tokens}
}

// build makes a plugin of JSON parameters; "" means none.
func build(tb testing.TB, typ, params string) plugin.Plugin {
	tb.Helper()
	p, err := try(typ, params)
	if err != nil {
		tb.Fatalf("%s %s: %v", typ, params, err)
	}
	return p
}

func try(typ, params string) (plugin.Plugin, error) {
	row, ok := Builtin().Find(typ)
	if !ok {
		return plugin.Plugin{}, fmt.Errorf("no type %s", typ)
	}
	if params == "" {
		return row.New(nil)
	}
	return row.New(&plugin.Params{Decode: func(into any) error { return json.Unmarshal([]byte(params), into) }})
}

// scores runs one scorer over the fleet.
func (f *fleet) scores(tb testing.TB, r *request.Request, typ, params string) []float64 {
	tb.Helper()
	c := f.cycle(r)
	defer c.Free()
	out := make([]float64, c.Len())
	build(tb, typ, params).Scorer.Score(c, out)
	return out
}

// kept runs one filter over the fleet and returns who is left.
func (f *fleet) kept(tb testing.TB, r *request.Request, typ, params string) string {
	tb.Helper()
	c := f.cycle(r)
	defer c.Free()
	return left(c, build(tb, typ, params).Filter)
}

func left(c *cycle.Cycle, f cycle.Filter) string {
	keep := make([]bool, c.Len())
	for k := range keep {
		keep[k] = true
	}
	f.Filter(c, keep)
	out := ""
	for k := range keep {
		if keep[k] {
			out += fmt.Sprint(k)
		}
	}
	return out
}

// pick runs a ready profile and returns the first choice.
func (f *fleet) pick(tb testing.TB, p *cycle.Profile, r *request.Request) int {
	tb.Helper()
	c := f.cycle(r)
	defer c.Free()
	return int(p.Run(c).Best())
}

func near(got, want []float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-9*max(1, math.Abs(want[i])) {
			return false
		}
	}
	return true
}
