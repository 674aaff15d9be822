package prefix

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// fault is a mismatch between engines and picker.
type fault struct {
	name       string
	render     func(text string) string // by the engine; nil: same as the picker
	model      string                   // of the events; "": that of the requests
	silent     bool                     // no events arrive
	wrongTopic bool                     // events arrive under another topic
	sparse     bool                     // events include groups that are not indexed
	window     int                      // blocks at a prompt's end that the engine keeps and needs; 0: all
	plain      bool                     // the picker does not render prompts
	less       int                      // cached blocks at the end that engines do not reuse
	skips      bool                     // every other request does not read the cache
	state      knowledge.State          // expected at the end
	says       string                   // expected in the reason
	partial    bool                     // streams are read from the middle on
	tools      bool                     // a third of the chats have tools, and render applies only to these
	images     bool                     // the same with images
	idle       bool                     // after 100 requests engines reuse no cached blocks
	unsaid     bool                     // answers omit cached tokens if there are none
	late       int                      // requests before the fault has an effect
	mute       bool                     // answers never report cached tokens
	blind      bool                     // answers do not report prompt tokens either
	pace       time.Duration            // between requests; 0: two seconds
	unread     [][2]int                 // ranges of requests during which no event is applied
}

// engines are simulated engines, each with an LRU cache of blocks.
type engines struct {
	f       fault
	h       block.Hasher
	index   *indexer.Index
	held    []map[block.Key]int // by engine, block to the time of use
	now     int
	blocks  int
	told    []int64         // when the events of each engine were last applied
	probed  []int           // per engine, batches since its publisher was last checked, plus one; 0: no check
	pending [][]block.Delta // per engine, not applied yet
}

const bytesOfBlock = 64 // 16 tokens of four bytes

func (e *engines) chain(text string) (keys []block.Key) {
	model := e.f.model
	if model == "" {
		model = "m"
	}
	key := e.h.Root(block.Scope{Space: block.SpaceText, Model: model})
	for ; len(text) >= bytesOfBlock; text = text[bytesOfBlock:] {
		key = e.h.Child(key, []byte(text[:bytesOfBlock]))
		keys = append(keys, key)
	}
	return keys
}

// serve returns the cached tokens of a prompt at the engine, and caches the prompt.
func (e *engines) serve(i int, text string, skip, special bool) (prompt, cached int) {
	if e.f.render != nil && (special || !e.f.tools && !e.f.images) {
		text = e.f.render(text)
	}
	e.now++
	keys, held, hit, run := e.chain(text), e.held[i], 0, 0
	for k := 0; k < len(keys) && k*bytesOfBlock < len(text)-4 && (held[keys[k]] > 0 || e.f.window > 0); k++ {
		if run++; held[keys[k]] == 0 {
			run = 0
		}
		if run == k+1 || e.f.window > 0 && run >= e.f.window {
			hit = k + 1
		}
	}
	root := e.h.Root(block.Scope{Space: block.SpaceText, Model: "m"})
	if e.f.model != "" {
		root = e.h.Root(block.Scope{Space: block.SpaceText, Model: e.f.model})
	}
	d := block.Delta{}
	for k, key := range keys {
		if held[key] == 0 && !e.f.silent {
			op := block.Op{Kind: block.OpStore, Root: k == 0, From: root, N: 1, First: uint32(len(d.Blocks))}
			if k > 0 {
				op.From, op.Parent = keys[k-1], block.EngineHash(keys[k-1])
			}
			d.Ops = append(d.Ops, op)
			d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(key), Key: key, Bytes: bytesOfBlock, Tokens: 16})
		}
		if held[key] = e.now; e.f.window > 0 && k < len(keys)-e.f.window {
			held[key] = 1 // outside of the window, so it is evicted first
		}
	}
	for len(held) > e.blocks {
		oldest := block.Key(0)
		for key, at := range held {
			if oldest == 0 || at < held[oldest] || at == held[oldest] && key < oldest {
				oldest = key
			}
		}
		delete(held, oldest)
		if !e.f.silent {
			d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, N: 1, First: uint32(len(d.Hashes))})
			d.Hashes = append(d.Hashes, block.EngineHash(oldest))
		}
	}
	e.pending[i] = append(e.pending[i], d)
	if e.probed[i] > 0 {
		e.probed[i]++
	}
	if hit = max(hit-e.f.less, 0); skip || e.f.idle && e.now > 100 {
		hit = 0
	}
	return len(text) / 4, hit * 16
}

// read applies all published events.
func (e *engines) read(now time.Time) {
	for i := range e.pending {
		for k := range e.pending[i] {
			if d := &e.pending[i][k]; len(d.Ops) > 0 {
				e.index.Apply(block.Source{Endpoint: block.EndpointID(i)}, d)
				e.told[i] = now.UnixNano()
			}
		}
		e.pending[i] = nil
	}
}

// unreadAt reports whether events wait during request n.
func (f *fault) unreadAt(n int) bool {
	return slices.ContainsFunc(f.unread, func(r [2]int) bool { return r[0] <= n && n < r[1] })
}

// played is the result of a run with a fault.
type played struct {
	asked         int // answers that were watched
	hits, prompts int
	named         int // the request after which a reason was shown; 0: never
	distrusts     int
	doubts        int // changes of verdicts
	state         knowledge.State
	reason        string
	verdicts      []Verdict
}

// play runs n requests of multi-turn chats on two engines. Each goes to the engine with the longest
// cached prefix.
func play(t *testing.T, f fault, n int) (out played) {
	t.Helper()
	h := block.NewHasher(block.Seed{1})
	e := &engines{f: f, h: h, index: indexer.New(indexer.Options{Hasher: h}), blocks: 2000}
	guess := approx.New(approx.Options{Hasher: h, ChunkBytes: 64, CapacityBytes: 2000 * bytesOfBlock})
	clock := time.Unix(1_800_000_000, 0)
	read := knowledge.Exact
	if f.partial {
		read = knowledge.Partial
	}
	m := New(Options{
		Index: e.index, Approx: guess, Now: func() time.Time { return clock }, Speculate: time.Second,
		Read: func(block.EndpointID) knowledge.State { return read },
		StreamInfo: func(ep *endpoint.Endpoint) StreamInfo {
			n := e.index.Blocks(block.Source{Endpoint: ep.ID})
			s := StreamInfo{Blocks: n, HasMessages: n > 0 || f.sparse, Sparse: f.sparse, Narrow: f.window > 0}
			if f.wrongTopic && e.probed[ep.ID] > 2 {
				s.TopicMismatch = &events.TopicMismatch{Topic: "kv-events"}
			}
			return s
		},
		ProbeTopics:    func(ep *endpoint.Endpoint) { e.probed[ep.ID] = max(e.probed[ep.ID], 1) },
		LastEvent:      func(id block.EndpointID) int64 { return e.told[id] },
		Invalidate:     func(*endpoint.Endpoint) { out.distrusts++ },
		VerdictChanged: func(*endpoint.Endpoint) { out.doubts++ },
		Streams:        nil,
	})
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set(fleetOf(2))
	eps := pool.Snapshot().Endpoints
	for range eps {
		e.held = append(e.held, map[block.Key]int{})
	}
	e.probed = make([]int, len(eps))
	e.told, e.pending = make([]int64, len(eps)), make([][]block.Delta, len(eps))
	if f.window > 0 {
		e.blocks = 300 // the beginnings of chats are evicted
	}
	rng := rand.New(rand.NewPCG(1, 2))
	chats := make([]string, 12)
	root := h.Root(block.Scope{Space: block.SpaceText, Model: "m"})
	for i := range n {
		clock = clock.Add(cmp.Or(f.pace, 2*time.Second))
		c := rng.IntN(len(chats))
		if len(chats[c]) > 6000 {
			chats[c] = ""
		}
		if chats[c] == "" {
			chats[c] = strings.Repeat(fmt.Sprintf("system %d says what to do and how. ", c%3), 20)
		}
		chats[c] += strings.Repeat(fmt.Sprintf("turn %d of chat %d: %d. ", i, c, rng.Int()), 10)
		text := []byte(chats[c])
		r := &request.Request{Kind: request.KindChat, InputTokens: len(text) / 4, Target: "m", Chunks: block.Query{Root: 7, Bytes: text}}
		r.ChunkKeys = guess.Keys(r.Chunks, nil)
		special := c%3 == 0
		if f.tools && special {
			r.Prompt.Tools = request.Span{0, 1}
		}
		if f.images && special {
			r.Prompt.Media = 1
		}
		if !f.plain {
			r.Exact, r.PromptBytes = []block.Query{{Root: root, Bytes: text}}, len(text)
		}
		held := make([]cycle.PrefixMatch, len(eps))
		m.Match(t.Context(), r, eps, held)
		best := c % 2
		for k := range held {
			if held[k].Run.Total() > held[best].Run.Total() {
				best = k
			}
		}
		m.Chosen(r, eps[best])
		skip := f.skips && i%2 == 1
		prompt, cached := e.serve(int(eps[best].ID), chats[c], skip, special)
		if !f.unreadAt(i) {
			e.read(clock.Add(time.Millisecond))
		}
		if skip {
			r.Body, r.Path = []byte(`{"model":"m","messages":[],"prompt_logprobs":1}`), "/v1/chat/completions"
			chunks := r.Chunks
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			r.Chunks = chunks
		} else {
			out.hits, out.prompts = out.hits+cached, out.prompts+prompt
		}
		if held[best].WantUsage {
			out.asked++
		}
		seen := (held[best].WantUsage || rng.Float64() < .05) && !f.blind
		m.Finished(r, eps[best], held[best], request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
			Seen: seen, CachedSeen: seen && !f.mute && (cached > 0 || !f.unsaid), PromptTokens: prompt, CachedTokens: cached,
		}})
		for _, ep := range eps {
			if state, reason := m.State(ep, read); reason != "" {
				if out.state, out.reason = state, reason; out.named == 0 {
					out.named = i + 1
				}
			}
		}
	}
	if out.named == 0 {
		out.state, out.reason = m.State(eps[0], read)
	}
	out.verdicts = m.Verdicts(eps[0])
	return out
}

// The picker watches answers for a bounded number of requests, because each watched answer passes
// through it chunk by chunk. The bound does not depend on the reported cached tokens.
func TestWatchedAnswersAreBounded(t *testing.T) {
	for _, f := range []fault{{name: "names no cached tokens", mute: true}, {name: "sends no usage", blind: true}, {name: "names cached tokens"}, {name: "leaves 0 out", unsaid: true}} {
		if got, most := play(t, f, 2000).asked, 2*(watched+enough); got > most {
			t.Errorf("engine %s: %d of 2,000 answers watched, want at most %d", f.name, got, most)
		}
	}
}

// The reason for wrong predictions is named within 50 requests. Until then the hit ratio is no
// worse than without events.
func TestVerdicts(t *testing.T) {
	sent := play(t, fault{plain: true}, 600)
	ratio := func(p played) float64 { return float64(p.hits) / float64(p.prompts) }
	for _, f := range []fault{
		{name: "nothing", state: knowledge.Exact},
		{name: "another template", render: func(s string) string { return "<|bos|>" + s }, state: knowledge.Mismatched, says: "rendering from the start"},
		{name: "another date", render: func(s string) string { return s[:200] + "23 Nov 2026" + s[200:] }, state: knowledge.Mismatched, says: "for about"},
		{name: "another topic", silent: true, wrongTopic: true, state: knowledge.Mismatched, says: `only the topic "kv-events"`},
		{name: "no events at all", silent: true, state: knowledge.Mismatched, says: "no event has arrived"},
		{name: "another model", model: "other", state: knowledge.Mismatched, says: "rendering from the start"},
		{name: "no model", plain: true, state: knowledge.Approximate, says: "--model"},
		{name: "EAGLE", less: 1, state: knowledge.Exact},
		{name: "three blocks less", less: 3, state: knowledge.Mismatched, says: "fewer tokens than its events"},
		{name: "unknown groups", silent: true, sparse: true, state: knowledge.Approximate, says: "not followed"},
		{name: "hybrid", sparse: true, less: 3, state: knowledge.Mismatched, says: "not followed"},
		{name: "windows alone", window: 8, state: knowledge.Mismatched, says: "only sliding-window or state layers"},
		{name: "half read no cache", skips: true, state: knowledge.Exact},
		{name: "older engines", unsaid: true, state: knowledge.Exact},
		{name: "another template for tools", tools: true, render: func(s string) string { return "<|tools|>" + s }, state: knowledge.Mismatched, says: "chats with tools: its prompts differ"},
		{name: "images", images: true, render: func(s string) string { return s[:640] + "<|image|>" + s[640:] }, state: knowledge.Exact, says: "chats with images: its events do not identify"},
		{name: "events wait for a second, a hundred requests long", pace: 10 * time.Millisecond, unread: [][2]int{{0, 100}}, state: knowledge.Exact},
		{name: "events wait for three seconds from the first request on", pace: 10 * time.Millisecond, unread: [][2]int{{0, 300}}, state: knowledge.Exact},
		{name: "another template, a hundred requests a second", pace: 10 * time.Millisecond, render: func(s string) string { return "<|bos|>" + s }, state: knowledge.Mismatched, says: "rendering from the start"},
		{name: "another topic, a hundred requests a second", pace: 10 * time.Millisecond, silent: true, wrongTopic: true, state: knowledge.Mismatched, says: `only the topic "kv-events"`},
		{name: "no events at all, a hundred requests a second", pace: 10 * time.Millisecond, silent: true, state: knowledge.Mismatched, says: "no event has arrived", late: 400},
		{name: "nothing is said", mute: true, state: knowledge.Exact, says: "--enable-prompt-tokens-details"},
		{name: "no usage is told", blind: true, state: knowledge.Exact, says: "include_usage"},
		{name: "nothing is reused any more", idle: true, unsaid: true, state: knowledge.Mismatched, says: "fewer tokens than its events", late: 100},
	} {
		t.Run(f.name, func(t *testing.T) {
			p, sent := play(t, f, 600), sent
			if f.window > 0 { // these engines differ from the others
				sent = play(t, fault{plain: true, window: f.window}, 600)
			}
			t.Logf("hit ratio %.3f, by what was sent alone %.3f; named after %d requests: %v %q; %+v", ratio(p), ratio(sent), p.named, p.state, p.reason, p.verdicts)
			if p.state != f.state || !strings.Contains(p.reason, f.says) || f.says == "" && p.reason != "" {
				t.Errorf("%v %q, want %v with %q", p.state, p.reason, f.state, f.says)
			}
			if f.says != "" && (p.named == 0 || p.named > 50+f.late) {
				t.Errorf("named after %d requests", p.named)
			}
			if f.less == 0 && !f.skips && !f.idle && ratio(p) < ratio(sent)-.03 {
				t.Errorf("hit ratio %.3f, by what was sent alone %.3f", ratio(p), ratio(sent))
			}
			if (f.sparse || f.window > 0) && p.named != 1 {
				t.Errorf("what is not followed is named after %d requests", p.named)
			}
			if (p.doubts > 0) != (p.state == knowledge.Mismatched) && !f.images && !f.sparse {
				t.Errorf("a verdict changed %d times", p.doubts)
			}
			if p.distrusts > 0 {
				t.Errorf("distrusted %d times without a stream", p.distrusts)
			}
		})
	}
}

func fleetOf(n int) (out []endpoint.Spec) {
	for i := range n {
		out = append(out, endpoint.Spec{
			Name: fmt.Sprint("e", i), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000), Models: []string{"m"},
		})
	}
	return out
}

// TestDropsLastBlock: an engine that does not reuse the last block of its cached prefix is
// detected, for any block size, and this never makes its data unreliable.
func TestDropsLastBlock(t *testing.T) {
	for _, size := range []int{16, 32, 48, 64, 528} {
		var r record
		now := time.Unix(1_800_000_000, 0)
		for i := range 200 {
			held := size * (2 + i%9)
			out := r.add(comparison{prompt: held + size, precise: held, cached: held - size, guess: -1, block: size}, now.Add(time.Duration(i)*time.Second))
			if out.invalid || out.changed || out.outcome == over {
				t.Fatalf("blocks of %d: comparison %d: %+v", size, i, out)
			}
		}
		if !r.dropsBlock() {
			t.Errorf("blocks of %d: not recognised: %+v", size, r)
		}
	}
}
