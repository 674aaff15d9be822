package prefix

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Matcher answers the picker from the precise index where an endpoint's
// knowledge is believed, and from the approximate index otherwise. Decisions
// enter the approximate index at once: for believed endpoints they count as
// speculative entries while they are young.
type Matcher struct {
	o       Options
	audit   *audit
	judge   judge
	sizing  atomic.Pointer[Sizing]
	scratch sync.Pool
}

// New returns a matcher.
func New(o Options) *Matcher {
	o.complete()
	m := &Matcher{o: o, audit: newAudit(o.Registerer)}
	m.scratch.New = func() any { return new(scratch) }
	m.sizing.Store(&Sizing{})
	return m
}

// scratch holds the slices of one Match.
type scratch struct {
	ids   []indexer.EndpointID
	since []int64
	runs  []indexer.Run
	ends  []int32

	checked []checkedEnd
}

func (s *scratch) reset() {
	s.ids, s.since, s.runs = s.ids[:0], s.since[:0], s.runs[:0]
}

// always makes every record of the approximate index count.
const always = -1 << 63

// Match implements picker.Matcher.
func (m *Matcher) Match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, held []picker.Held) {
	s := m.scratch.Get().(*scratch)
	defer m.scratch.Put(s)
	s.reset()
	now := m.o.Now()
	for i, ep := range eps {
		since := int64(always)
		if len(r.Exact) > 0 && m.Believed(ep.ID) {
			since = m.young(ep, now)
		}
		s.ids, s.runs, s.since = append(s.ids, ep.ID), append(s.runs, indexer.Run{}), append(s.since, since)
		held[i] = picker.Held{Precise: -1, Approximate: -1, Looked: true}
	}
	m.matchPrecise(r, s, held)
	m.matchChunks(r, s, held)
}

// matchPrecise fills held with the runs that the precise index sees.
func (m *Matcher) matchPrecise(r *request.Request, s *scratch, held []picker.Held) {
	if len(r.Exact) == 0 {
		return
	}
	for i := range r.Exact {
		m.o.Index.Match(r.Exact[i], s.ids, s.runs)
		m.trimUnsafe(r, s, r.Exact[i])
		for k := range held {
			add(&held[k].Run, &s.runs[k])
		}
	}
	for k := range held {
		held[k].Precise = held[k].Run.Total()
	}
}

// matchChunks replaces the runs for which the approximate index sees more.
func (m *Matcher) matchChunks(r *request.Request, s *scratch, held []picker.Held) {
	if len(r.ChunkKeys) == 0 {
		return
	}
	m.o.Approx.Match(r.ChunkKeys, s.ids, s.since, s.runs)
	for k := range held {
		// Chunks are bytes of the raw prompt: tokens in proportion.
		guess := s.runs[k]
		guess.Tokens = [indexer.NumTiers]int32{int32(float64(guess.Bytes) / float64(r.ChunkBytes()) * float64(r.InputTokens))}
		if s.since[k] == always {
			held[k].Approximate = guess.Total()
		}
		if guess.Total() > held[k].Run.Total() {
			held[k].Run = guess
		}
	}
}

// maxQueued bounds for how long a queue makes a decision count.
const maxQueued = 2 * time.Minute

// young is the time, in nanoseconds, since when decisions for ep may still be
// without events: a request that waits for its prefill stores nothing.
func (m *Matcher) young(ep *endpoint.Endpoint, now time.Time) int64 {
	return now.Add(-m.o.Speculate - min(m.o.Wait(ep, now), maxQueued)).UnixNano()
}

// Believed reports whether the precise index is believed about an endpoint.
// Every decision asks this for each endpoint.
func (m *Matcher) Believed(id indexer.EndpointID) bool {
	return m.o.Read(id).Followed() && !m.o.Index.Overflowed(id)
}

func add(a, b *indexer.Run) {
	a.Blocks += b.Blocks
	a.Bytes += b.Bytes
	for t := range a.Tokens {
		a.Tokens[t] += b.Tokens[t]
	}
}

// Chosen implements picker.Matcher.
func (m *Matcher) Chosen(r *request.Request, ep *endpoint.Endpoint) {
	if len(r.ChunkKeys) == 0 {
		return
	}
	now := m.o.Now()
	m.o.Approx.Record(ep.ID, r.ChunkKeys, now.UnixNano())
	if m.o.Recorded != nil {
		m.o.Recorded(ep, r.ChunkKeys, now)
	}
}

// Finished implements picker.Matcher.
func (m *Matcher) Finished(r *request.Request, ep *endpoint.Endpoint, h picker.Held, o picker.Outcome) {
	if o.Status >= 400 || (o.Status == 0 && !o.Complete) {
		// The engine failed or refused it, so that nothing was computed: the endpoint
		// holds what it held before.
		before := float64(h.Run.Total()) / float64(max(r.InputTokens, 1))
		m.o.Approx.Truncate(ep.ID, r.ChunkKeys, int(before*float64(r.ChunkBytes())))
		return
	}
	if o.Usage.Seen && r.PromptBytes > 0 && m.o.Models != nil {
		m.o.Models.learn(r.Target, r.PromptBytes, o.Usage.PromptTokens)
	}
	if h.Looked && o.Usage.CachedSeen && o.Usage.PromptTokens > 0 {
		m.check(r, ep, h, o.Usage)
	}
}

// Left forgets what is remembered of endpoints that left the pool.
func (m *Matcher) Left(eps []*endpoint.Endpoint) {
	for _, ep := range eps {
		m.o.Approx.Forget(ep.ID)
		m.judge.forget(ep.ID)
	}
}
