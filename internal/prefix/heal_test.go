package prefix

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/eventtest/pool"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// lateFleet is a fleet of engines with vLLM's block pools. A replica joins it late and has none of
// the earlier events.
type lateFleet struct {
	t       *testing.T
	rng     *rand.Rand
	deaf    bool // engines make no reports
	pools   []*pool.Pool
	eps     []*endpoint.Endpoint
	index   *indexer.Index
	readers []*translate.Translator // of the replica; nil before it joins
	matcher *Matcher
	clock   time.Time
	root    block.Key
	systems [][]uint32
	chats   [][]uint32
	touched []map[block.Key]bool // blocks of prompts that each engine was sent since the replica joined
	hasher  block.Hasher
}

func newLate(t *testing.T, n int, deaf, ask bool) *lateFleet {
	t.Helper()
	h := block.NewHasher(block.Seed{1})
	l := &lateFleet{
		t: t, rng: rand.New(rand.NewPCG(15, uint64(n))), deaf: deaf, index: indexer.New(indexer.Options{Hasher: h}),
		clock: time.Unix(1_800_000_000, 0), hasher: h, root: h.Root(block.Scope{Space: block.SpaceTokens, Model: "m"}),
	}
	known := endpoint.NewPool(endpoint.PoolOptions{})
	known.Set(fleetOf(n))
	l.eps = known.Snapshot().Endpoints
	for _, ep := range l.eps {
		ep.SetGauges(endpoint.Gauges{At: l.clock, Engine: endpoint.EngineVLLM, BlockSize: pool.Block})
		l.pools, l.touched = append(l.pools, pool.New(4000)), append(l.touched, map[block.Key]bool{})
		l.readers = append(l.readers, translate.New(translate.Options{Source: block.Source{Endpoint: ep.ID}, Index: l.index, Hasher: h, Model: "m"}))
	}
	l.matcher = New(Options{
		Index: l.index, Approx: approx.New(approx.Options{Hasher: h}), Now: func() time.Time { return l.clock }, FullReport: ask,
		Read: func(block.EndpointID) knowledge.State { return knowledge.Partial },
		Streams: func(*endpoint.Endpoint) []events.Stream {
			return []events.Stream{{Events: "tcp://10.0.0.1:5557"}}
		},
		StreamInfo: func(ep *endpoint.Endpoint) StreamInfo {
			return StreamInfo{Blocks: 1, HasMessages: true, Reports: l.readers[ep.ID].Stats().Answered}
		},
		Expect: func(ep *endpoint.Endpoint, q block.Query) bool {
			l.readers[ep.ID].Expect(q, true)
			return true
		},
	})
	for range 4 {
		l.systems = append(l.systems, l.words(500+l.rng.IntN(1500)))
	}
	return l
}

func (l *lateFleet) words(n int) (out []uint32) {
	for range n {
		out = append(out, l.rng.Uint32N(50_000))
	}
	return out
}

// next returns the next prompt of a chat, or the first of a new one.
func (l *lateFleet) next() (chat int, prompt []uint32) {
	if len(l.chats) < 120 || l.rng.IntN(10) == 0 {
		prompt = append(prompt, l.systems[l.rng.IntN(len(l.systems))]...)
		if chat = len(l.chats); chat < 120 {
			l.chats = append(l.chats, nil)
		} else {
			chat = l.rng.IntN(len(l.chats))
		}
	} else {
		chat = l.rng.IntN(len(l.chats))
		prompt = append(prompt, l.chats[chat]...)
	}
	return chat, append(prompt, l.words(20+l.rng.IntN(200))...)
}

func bytesOf(ids []uint32) (out []byte) {
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, id)
	}
	return out
}

// run has an engine serve a prompt. joined means that the replica reads its events.
func (l *lateFleet) run(e int, prompt []uint32, report, joined bool) {
	l.pools[e].Run(prompt, report && !l.deaf, false)
	b := decode.Batch{Events: l.pools[e].Take()}
	if joined && len(b.Events) > 0 {
		var d block.Delta
		l.readers[e].Translate(&b, &d)
		l.index.Apply(block.Source{Endpoint: l.eps[e].ID}, &d)
	}
}

// compared counts comparisons of predictions with the engines' caches.
type compared struct {
	total, exact, over int
	unreported         int // short only by blocks that no request sent there since the replica joined
}

func (c *compared) add(predicted, there int) {
	c.total++
	switch {
	case predicted == there:
		c.exact++
	case predicted > there:
		c.over++
	}
}

func (c *compared) share() float64 { return float64(c.exact) / float64(max(c.total, 1)) }

// serve sends n requests, 10 ms apart. It compares the prediction for the chosen engine, and the
// predictions for all engines.
func (l *lateFleet) serve(n int) (chosen, all compared) {
	for range n {
		l.clock = l.clock.Add(10 * time.Millisecond)
		chat, prompt := l.next()
		q := block.Query{Root: l.root, Bytes: bytesOf(prompt)}
		r := &request.Request{Kind: request.KindChat, InputTokens: len(prompt), Target: "m", ModelSpan: [2]int{1, 2}, Exact: []block.Query{q}}
		held := make([]cycle.PrefixMatch, len(l.eps))
		l.matcher.Match(l.t.Context(), r, l.eps, held)
		e := l.rng.IntN(len(l.eps)) // by load if little is cached
		for k := range held {
			if 2*int(held[k].Run.Total()) > len(prompt) && held[k].Run.Total() > held[e].Run.Total() {
				e = k
			}
		}
		for k, h := range held {
			predicted, there := min(int(h.Precise), (len(prompt)-1)/16*16), l.pools[k].Hit(prompt)*16
			all.add(predicted, there)
			if k != e {
				continue
			}
			chosen.add(predicted, there)
			if keys := l.keys(prompt[:there]); predicted < there && !l.touched[k][keys[predicted/pool.Block]] {
				chosen.unreported++
			}
		}
		report := l.matcher.Report(r, l.eps[e]) != ""
		cached := l.pools[e].Hit(prompt) * 16
		for _, key := range l.keys(prompt) {
			l.touched[e][key] = true
		}
		l.run(e, prompt, report, true)
		seen := held[e].WantUsage || l.rng.IntN(20) == 0
		l.matcher.Finished(r, l.eps[e], held[e], request.Outcome{Status: 200, Complete: true, Usage: request.Usage{
			Seen: seen, CachedSeen: seen, PromptTokens: len(prompt), CachedTokens: cached,
		}})
		l.goesOn(chat, prompt)
	}
	return chosen, all
}

// keys are the blocks of a prompt.
func (l *lateFleet) keys(prompt []uint32) (out []block.Key) {
	key := l.root
	for ; len(prompt) >= pool.Block; prompt = prompt[pool.Block:] {
		key = l.hasher.Child(key, bytesOf(prompt[:pool.Block]))
		out = append(out, key)
	}
	return out
}

// goesOn keeps a chat with an answer, unless it has become long.
func (l *lateFleet) goesOn(chat int, prompt []uint32) {
	if l.chats[chat] = append(prompt, l.words(30)...); len(l.chats[chat]) > 6000 {
		l.chats[chat] = append([]uint32(nil), l.systems[chat%len(l.systems)]...)
	}
}

// warm has the engines serve n requests before the replica joins. Each chat stays at one engine.
func (l *lateFleet) warm(n int) {
	for range n {
		chat, prompt := l.next()
		l.run(chat%len(l.eps), prompt, false, false)
		l.goesOn(chat, prompt)
	}
}

// TestLatecomerHeals: a replica that joins engines whose replay rings have wrapped has their cache
// contents within ten seconds, from reports requested by few requests.
func TestLatecomerHeals(t *testing.T) {
	for _, n := range []int{2, 4} {
		l := newLate(t, n, false, true)
		l.warm(600)
		first, firstAll := l.serve(1000) // ten seconds
		then, thenAll := l.serve(500)
		b := &l.matcher.budget
		told := float64(first.exact) / float64(first.total-first.unreported)
		t.Logf("%d engines: first 10 s %.1f%% exact (all engines %.1f%%), %.1f%% short by what nobody could tell, of the others %.1f%% exact; then %.1f%% (%.1f%%); %d requests asked",
			n, 100*first.share(), 100*firstAll.share(), 100*float64(first.unreported)/float64(first.total), 100*told, 100*then.share(), 100*thenAll.share(), b.asked.Load())
		if told < .98 {
			t.Errorf("%d engines: %.1f%% of the predictions for reported blocks are exact", n, 100*told)
		}
		if over := firstAll.over + thenAll.over; over > 0 {
			t.Errorf("%d engines: %d predictions of more than there was", n, over)
		}
		if then.share() < .98 {
			t.Errorf("%d engines: after ten seconds %.1f%% of predictions are exact", n, 100*then.share())
		}
		if b.asked.Load() > b.sent.Load()/reportShare+reportAhead || b.asked.Load() == 0 {
			t.Errorf("%d of %d requests asked", b.asked.Load(), b.sent.Load())
		}
		state, reason := l.matcher.State(l.eps[0], knowledge.Partial)
		if state != knowledge.Partial || !strings.Contains(reason, "% right") {
			t.Errorf("%v: %s", state, reason)
		}
	}
}

// TestLatecomerStaysPartial: if engines cannot make reports, or requesting reports is disabled, the
// state names the missing data and the remedy. The replica requests no more reports than it needs
// to detect this.
func TestLatecomerStaysPartial(t *testing.T) {
	for _, c := range []struct {
		deaf, ask bool
		says      string
		most      uint64
	}{{true, true, "vLLM before 0.32", 60}, {false, false, "--full-report", 0}} {
		l := newLate(t, 2, c.deaf, c.ask)
		l.warm(600)
		_, all := l.serve(600)
		state, reason := l.matcher.State(l.eps[0], knowledge.Partial)
		if state != knowledge.Partial || !strings.Contains(reason, c.says) || all.over > 0 {
			t.Errorf("%v: %q, without %q; %d predictions of more than there was", state, reason, c.says, all.over)
		}
		if asked := l.matcher.budget.asked.Load(); asked > c.most {
			t.Errorf("%d requests asked", asked)
		}
	}
}

// TestReportBudget: the cost of reports is bounded by requests and by bytes.
func TestReportBudget(t *testing.T) {
	var b reports
	now := time.Unix(1_800_000_000, 0)
	for n := range 10_000 {
		b.count()
		b.spend(1, now)
		if want := uint64(n+1)/reportShare + reportAhead; b.asked.Load() > want {
			t.Fatalf("%d of %d requests asked", b.asked.Load(), n+1)
		}
	}
	if b.asked.Load() != 10_000/reportShare+reportAhead {
		t.Errorf("%d asked", b.asked.Load())
	}
	b = reports{}
	for b.spend(100_000, now) {
	}
	if got := b.bytes; got > reportBurst || got < reportBurst-100_000*reportToken {
		t.Errorf("%.0f bytes in one moment", got)
	}
	if !b.spend(100_000, now.Add(2*time.Second)) {
		t.Error("nothing comes again")
	}
}
