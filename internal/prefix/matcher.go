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
	audits  sync.Map // of *audits, by name of the model
	sizing  atomic.Pointer[Sizing]
	sent    atomic.Uint64 // requests that Report was asked about
	asked   atomic.Uint64 // of them, those that were made to report
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
	all   []indexer.Run
	flags []flags
	ends  []int32

	checked []checkedEnd
}

func (s *scratch) reset() {
	s.ids, s.since, s.runs = s.ids[:0], s.since[:0], s.runs[:0]
	s.all, s.flags = s.all[:0], s.flags[:0]
}

// always makes every record of the approximate index count.
const always = -1 << 63

// Match implements picker.Matcher.
func (m *Matcher) Match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, held []picker.Held) {
	s := m.scratch.Get().(*scratch)
	defer m.scratch.Put(s)
	s.reset()
	now, records := m.o.Now(), m.auditsOf(r)
	for i, ep := range eps {
		since, f := int64(always), records.of(ep.ID)
		if len(r.Exact) > 0 && f&flagGuess == 0 && m.Believed(ep.ID) {
			since = m.young(ep, now)
		}
		s.ids, s.runs, s.since = append(s.ids, ep.ID), append(s.runs, indexer.Run{}), append(s.since, since)
		s.all, s.flags = append(s.all, indexer.Run{}), append(s.flags, f)
		held[i] = picker.Held{Precise: -1, Approximate: -1, Looked: true, WantUsage: f&flagWatch != 0 && len(r.Exact) > 0}
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

// matchChunks replaces the runs for which the approximate index sees more, or which
// have been wrong where it was right.
func (m *Matcher) matchChunks(r *request.Request, s *scratch, held []picker.Held) {
	if len(r.ChunkKeys) == 0 {
		return
	}
	m.o.Approx.MatchBoth(r.ChunkKeys, s.ids, s.since, s.runs, s.all)
	for k := range held {
		held[k].Approximate = inTokens(r, &s.all[k])
		guess := s.runs[k]
		guess.Tokens = [indexer.NumTiers]int32{inTokens(r, &guess)}
		if s.flags[k]&flagGuess != 0 || guess.Total() > held[k].Run.Total() {
			held[k].Run = guess
		}
	}
}

// inTokens is the length of a run of chunks in tokens: chunks are bytes of the raw
// prompt, tokens are in proportion.
func inTokens(r *request.Request, run *indexer.Run) int32 {
	return int32(float64(run.Bytes) / float64(r.ChunkBytes()) * float64(r.InputTokens))
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
	if h.Looked && r.Kind != request.KindOther {
		m.auditsOf(r).with(ep.ID, func(rec *record) { rec.ended(h.Precise < 0) })
	}
	if h.Looked && o.Usage.CachedSeen && o.Usage.PromptTokens > 0 {
		m.check(r, ep, h, o.Usage)
	}
}

// Left forgets what is remembered of endpoints that left the pool.
func (m *Matcher) Left(eps []*endpoint.Endpoint) {
	for _, ep := range eps {
		m.o.Approx.Forget(ep.ID)
		m.audits.Range(func(_, a any) bool {
			a.(*audits).forget(ep.ID)
			return true
		})
	}
}
