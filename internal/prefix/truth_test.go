package prefix

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var truthChats = flag.Int("truth.chats", 400, "chat requests of each truth test")

const (
	truthBlock = 16
	patience   = time.Minute // for events that must come
)

// harness is the fleet of testdata/harness.py: prompts rendered, tokenized and
// cached by parts that this project does not share code with.
type harness struct {
	*parts.Script
	opts harnessOptions
	Port [][2]int `json:"ports"`
}

type harnessOptions struct {
	Seed    int    `json:"seed"`
	Model   string `json:"model"`
	Engines int    `json:"engines"`
	Blocks  int    `json:"blocks"`
	Ring    int    `json:"ring"`
	Block   int    `json:"block"` // tokens; 0: truthBlock
}

func startHarness(t *testing.T, o harnessOptions) *harness {
	t.Helper()
	h := &harness{Script: parts.Start(t, "testdata/harness.py"), opts: o}
	h.Ask(o, h)
	return h
}

// follower holds the parts of a replica that predict: index, streams, prompts, matcher.
type follower struct {
	t       *testing.T
	h       *harness
	index   *indexer.Index
	models  *Models
	events  *events.Manager
	matcher *Matcher
	pool    *endpoint.Pool
	eps     []*endpoint.Endpoint
	lax     bool // faults are active: do not wait for events, do not judge
}

func follow(t *testing.T, h *harness, replay bool) *follower {
	t.Helper()
	f := &follower{t: t, h: h, pool: endpoint.NewPool(endpoint.PoolOptions{})}
	hasher := block.NewHasher(block.Seed{2})
	f.index = indexer.New(indexer.Options{Hasher: hasher})
	approx := approx.New(approx.Options{Hasher: hasher})
	var err error
	if f.models, err = OpenModels([]ModelOptions{{Name: "m", Path: h.opts.Model}}, ModelsOptions{Hasher: hasher, Approx: approx}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.models.Close)
	if err := f.models.Registry().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := f.models.Status(); st[0].State != "ready" {
		t.Fatalf("model: %+v", st[0])
	}
	f.events = events.Open(events.Options{Index: f.index, Hasher: hasher, CoolDown: 100 * time.Millisecond, ReplayIdle: 500 * time.Millisecond})
	t.Cleanup(func() { f.events.Close() })
	var specs []endpoint.Spec
	for i, p := range h.Port {
		spec := endpoint.Spec{
			Name: fmt.Sprint("e", i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(20000+i)),
			Models: []string{"m"}, Events: endpoint.Events{Port: p[0], ReplayPort: p[1], Ranks: 1},
		}
		if !replay {
			spec.Events.ReplayPort = 0
		}
		specs = append(specs, spec)
	}
	f.pool.Set(specs)
	f.eps = f.pool.Snapshot().Endpoints
	streams := func(ep *endpoint.Endpoint) []events.Stream {
		return events.PortStreams("127.0.0.1", ep.Events.Port, ep.Events.ReplayPort, 1, "")
	}
	f.matcher = New(Options{
		Index: f.index, Approx: approx, Models: f.models, Streams: streams,
		Read:       func(ep block.EndpointID) knowledge.State { return f.events.State(ep) },
		Invalidate: func(ep *endpoint.Endpoint) { f.events.Invalidate(ep.ID) },
		Confirm:    func(ep *endpoint.Endpoint) { f.events.Confirm(ep.ID) },
	})
	var src []events.EndpointSource
	for _, ep := range f.eps {
		src = append(src, events.EndpointSource{ID: ep.ID, Name: ep.Address, Model: f.models.EventModel(ep), Streams: streams(ep)})
	}
	f.events.Set(src)
	return f
}

// settled waits until every stream has been followed to the sequence numbers
// that the engines have published.
func (f *follower) settled(seq []int64, within time.Duration) bool {
	for end := time.Now().Add(within); ; time.Sleep(200 * time.Microsecond) {
		done := true
		for i, ep := range f.eps {
			p, _ := f.events.Position(block.Source{Endpoint: ep.ID})
			if int64(p.Seq) < seq[i]+1 || f.events.Knowledge(ep.ID).State < knowledge.Partial {
				done = false
			}
		}
		if done || time.Now().After(end) {
			return done
		}
	}
}

// asked is one request of the harness.
type asked struct {
	Body json.RawMessage `json:"body"`
	Text string          `json:"text"`
}

type answered struct {
	Truth  []int   `json:"truth"`
	Prompt int     `json:"prompt_tokens"`
	Seq    []int64 `json:"seq"`
}

// predict returns the cached tokens that the matcher sees on each endpoint.
func (f *follower) predict(q asked) []int {
	f.t.Helper()
	r := &request.Request{Path: "/v1/chat/completions", Body: q.Body, Headers: noHeaders{}}
	if err := request.Parse(r); err != nil {
		f.t.Fatal(err)
	}
	f.models.Fill(f.t.Context(), r)
	if len(r.Exact) != 1 || string(r.Exact[0].Bytes) != q.Text {
		got := ""
		if len(r.Exact) > 0 {
			got = string(r.Exact[0].Bytes)
		}
		f.t.Fatalf("rendered otherwise than by the reference:\n%q\nwant\n%q", got, q.Text)
	}
	held := make([]cycle.PrefixMatch, len(f.eps))
	f.matcher.Match(f.t.Context(), r, f.eps, held)
	f.models.Release(r)
	out := make([]int, len(held))
	for i := range held {
		out[i] = int(held[i].Run.Total())
	}
	return out
}

type noHeaders struct{}

func (noHeaders) Get(string) string { return "" }

// score counts how predictions compare with the truth.
type score struct {
	requests, exact, over, under, far int // requests: (request, endpoint) pairs
	noncanonical                      int
}

func (s score) String() string {
	return fmt.Sprintf("%d comparisons: exact %.3f%%, one block more %d, one block less %d, further off %d; %d answers with non-canonical tokens",
		s.requests, 100*float64(s.exact)/float64(s.requests), s.over, s.under, s.far, s.noncanonical)
}

// compare notes one prediction; the last prompt token is always computed, so a
// whole prompt counts as the blocks before it.
func (s *score) compare(predicted, truth, prompt int) {
	predicted = min(predicted, (prompt-1)/truthBlock*truthBlock)
	s.requests++
	switch predicted - truth {
	case 0:
		s.exact++
	case truthBlock:
		s.over++
	case -truthBlock:
		s.under++
	default:
		s.far++
	}
}

// chats plays n requests; each prediction is compared on every endpoint.
func (f *follower) chats(n int, rng *rand.Rand, s *score) (last answered) {
	f.t.Helper()
	for range n {
		var q asked
		f.h.Ask(map[string]any{"op": "next"}, &q)
		predicted := f.predict(q)
		best := rng.IntN(len(predicted))
		for i, p := range predicted {
			if rng.Float64() < .8 && p > predicted[best] {
				best = i
			}
		}
		odd := rng.Float64() < .2
		if odd {
			s.noncanonical++
		}
		var a answered
		f.h.Ask(map[string]any{"op": "run", "engine": best, "noncanonical": odd}, &a)
		for i := range predicted {
			if f.lax {
				break
			}
			truth := a.Truth[i] / truthBlock * truthBlock
			if d := min(predicted[i], (a.Prompt-1)/truthBlock*truthBlock) - truth; d != 0 {
				f.t.Logf("request %d engine %d: predicted %d truth %d prompt %d", s.requests/len(predicted), i, predicted[i], truth, a.Prompt)
			}
			s.compare(predicted[i], truth, a.Prompt)
		}
		if !f.lax && !f.settled(a.Seq, patience) {
			f.t.Fatalf("events did not arrive: published %v", a.Seq)
		}
		last = a
	}
	return last
}

// connected waits until every stream is followed.
func (f *follower) connected() {
	f.t.Helper()
	none := make([]int64, len(f.eps))
	for i := range none {
		none[i] = -1
	}
	if !f.settled(none, patience) {
		f.t.Fatal("streams are not connected")
	}
}

// Predictions from events equal the caches of an independent fleet, request by request and engine
// by engine.
func TestTruth(t *testing.T) {
	for _, model := range []string{"qwen3", "qwen2_5", "llama3_1"} {
		t.Run(model, func(t *testing.T) {
			n := *truthChats / 3
			h := startHarness(t, harnessOptions{Seed: 1, Model: parts.Model(t, model), Engines: 8, Blocks: 3000, Ring: 10000})
			f := follow(t, h, true)
			f.connected()
			var s score
			f.chats(n, rand.New(rand.NewPCG(1, 1)), &s)
			t.Log(s)
			if float64(s.exact) < .99*float64(s.requests) || s.far > 0 {
				t.Errorf("not exact enough: %v", s)
			}
		})
	}
}

// Blocks of fewer than sixteen tokens are indexed in units of sixteen tokens, as the tokenizer
// counts them. The prediction equals the fleet's cache in whole units.
func TestTruthOfSmallBlocks(t *testing.T) {
	for _, size := range []int{8, 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := startHarness(t, harnessOptions{Seed: 5, Model: parts.Model(t, "qwen3"), Engines: 4, Blocks: 3000 * truthBlock / size, Ring: 10000, Block: size})
			f := follow(t, h, true)
			f.connected()
			var s score
			f.chats(*truthChats/2, rand.New(rand.NewPCG(5, uint64(size))), &s)
			t.Log(s)
			if s.exact < s.requests {
				t.Errorf("not exact: %v", s)
			}
		})
	}
}

// After each fault of the event streams predictions are as exact as before,
// within seconds of the fault's end.
func TestHealing(t *testing.T) {
	h := startHarness(t, harnessOptions{Seed: 2, Model: parts.Model(t, "qwen3"), Engines: 4, Blocks: 2000, Ring: 10000})
	f := follow(t, h, true)
	f.connected()
	rng := rand.New(rand.NewPCG(2, 2))
	fault := func(kind string, args ...any) {
		for e := range f.eps {
			c := map[string]any{"op": "fault", "engine": e, "kind": kind}
			for i := 0; i < len(args); i += 2 {
				c[args[i].(string)] = args[i+1]
			}
			h.Ask(c, &struct{}{})
		}
	}
	for _, step := range []struct {
		name       string
		begin, end func()
	}{
		{"none", func() {}, func() {}},
		{"2% of batches dropped", func() { fault("drop", "share", .02) }, func() { fault("drop", "share", 0) }},
		{"replays with holes", func() { fault("drop", "share", .05); fault("holes", "share", .3) }, func() { fault("drop", "share", 0) }},
		{"engines restarted, sequence already past", func() { fault("restart", "ahead", 2000) }, func() {}},
		{"engines restarted from zero", func() { fault("restart", "ahead", 0) }, func() {}},
	} {
		var s score
		step.begin()
		f.lax = true
		f.chats(*truthChats/8, rng, &s)
		step.end()
		began := time.Now()
		last := f.chats(12, rng, &s) // a lost batch shows with the next one
		if !f.settled(last.Seq, patience) {
			for _, ep := range f.eps {
				p, _ := f.events.Position(block.Source{Endpoint: ep.ID})
				t.Logf("%s: %v at %d", ep.Name, f.events.Knowledge(ep.ID), p.Seq)
			}
			t.Fatalf("%s: not healed within a minute, published %v", step.name, last.Seq)
		}
		healed := time.Since(began)
		f.lax = false
		f.chats(*truthChats/8, rng, &s)
		t.Logf("%-42s healed in %v; then %v", step.name, healed.Round(time.Millisecond), s)
		if float64(s.exact) < .99*float64(s.requests) || s.far > 0 {
			t.Errorf("%s: %v", step.name, s)
		}
	}
	late(t, h, f, rng)
}

// late starts replicas late: with the engines' replay rings whole, and wrapped.
func late(t *testing.T, h *harness, f *follower, rng *rand.Rand) {
	var seq struct {
		Seq []int64 `json:"seq"`
	}
	h.Ask(map[string]any{"op": "seq"}, &seq)
	g := follow(t, h, true)
	began := time.Now()
	if !g.settled(seq.Seq, patience) {
		t.Fatal("a replica started late does not settle")
	}
	took := time.Since(began)
	var s score
	g.chats(*truthChats/8, rng, &s)
	t.Logf("%-42s settled in %v; then %v", "replica started late", took.Round(time.Millisecond), s)
	if float64(s.exact) < .99*float64(s.requests) || s.far > 0 {
		t.Errorf("a replica started late: %v", s)
	}
	h.Ask(map[string]any{"op": "seq"}, &seq)
	for e := range f.eps {
		h.Ask(map[string]any{"op": "fault", "engine": e, "kind": "wrap", "count": int(seq.Seq[e] * 2 / 3)}, &struct{}{})
	}
	w := follow(t, h, true)
	if !w.settled(seq.Seq, patience) {
		t.Fatal("a replica started after the ring wrapped does not settle")
	}
	over := 0
	for range *truthChats / 8 {
		var q asked
		var a answered
		h.Ask(map[string]any{"op": "next"}, &q)
		predicted := w.predict(q)
		h.Ask(map[string]any{"op": "run", "engine": rng.IntN(len(predicted))}, &a)
		for i, p := range predicted {
			if p > a.Truth[i]+truthBlock {
				over++
			}
		}
		w.settled(a.Seq, patience)
	}
	t.Logf("%-42s promises more than there is: %d times", "replica started after the ring wrapped", over)
	if over > 0 {
		t.Errorf("a replica that knows only a part promised too much %d times", over)
	}
}

// Without a replay socket, the audit repairs a gap: answers show which blocks are missing, and when
// the index is correct again.
func TestHealingByAudit(t *testing.T) {
	h := startHarness(t, harnessOptions{Seed: 3, Model: parts.Model(t, "qwen3"), Engines: 4, Blocks: 2000, Ring: 10000})
	f := follow(t, h, false)
	rng := rand.New(rand.NewPCG(3, 3))
	f.audited(40, rng, nil)
	drop := func(share float64) {
		for e := range f.eps {
			h.Ask(map[string]any{"op": "fault", "engine": e, "kind": "drop", "share": share}, &struct{}{})
		}
	}
	drop(.05)
	f.audited(60, rng, nil)
	drop(0)
	exact := func() (n int) {
		for _, ep := range f.eps {
			if f.events.Knowledge(ep.ID).State.Followed() {
				n++
			}
		}
		return n
	}
	lost, asked := len(f.eps)-exact(), 0
	for ; asked < 400 && exact() < len(f.eps); asked++ {
		f.audited(1, rng, nil)
	}
	var first, later score
	f.audited(100, rng, &first)
	f.audited(200, rng, nil)
	f.audited(100, rng, &later)
	t.Logf("%d of %d engines doubted when the fault ended; all believed after %d audited requests", lost, len(f.eps), asked)
	t.Logf("first 100 requests: %v", first)
	t.Logf("after 200 more:     %v", later)
	if asked == 400 {
		t.Error("some engine is not believed again")
	}
	if float64(later.exact) < .9*float64(later.requests) {
		t.Errorf("not healed: %v", later)
	}
}

// audited plays n requests whose engines report their cached tokens; the
// predictions for the engines that answer are compared.
func (f *follower) audited(n int, rng *rand.Rand, s *score) {
	f.t.Helper()
	for range n {
		var q asked
		f.h.Ask(map[string]any{"op": "next"}, &q)
		r := &request.Request{Path: "/v1/chat/completions", Body: q.Body, Headers: noHeaders{}}
		if err := request.Parse(r); err != nil {
			f.t.Fatal(err)
		}
		f.models.Fill(f.t.Context(), r)
		held := make([]cycle.PrefixMatch, len(f.eps))
		f.matcher.Match(f.t.Context(), r, f.eps, held)
		e := rng.IntN(len(f.eps))
		f.models.Release(r) // the decision is made
		var a answered
		f.h.Ask(map[string]any{"op": "run", "engine": e}, &a)
		if s != nil {
			s.compare(int(held[e].Run.Total()), a.Truth[e], a.Prompt)
		}
		f.matcher.Finished(r, f.eps[e], held[e], request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
			Seen: true, CachedSeen: true, PromptTokens: a.Prompt, CachedTokens: a.Truth[e],
		}})
		limit := time.Second
		if s == nil { // with faults, some events never come
			limit = 20 * time.Millisecond
		}
		f.settled(a.Seq, limit)
	}
}
