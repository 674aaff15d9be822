package prefix

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Matcher uses the precise index for endpoints with verified events, and the approximate index for
// others. Decisions enter the approximate index immediately; for endpoints with verified events,
// recent entries count as speculative.
type Matcher struct {
	o       Options
	audit   *audit
	audits  sync.Map // of *audits, by model name
	unlike  sync.Map // of unlike, by unlikeKey
	sizing  atomic.Pointer[Sizing]
	sizes   sync.Map // EndpointIDs whose engines report their cache size
	budget  reports
	reuses  reuses
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
	ids   []block.EndpointID
	since []int64
	runs  []block.Run
	all   []block.Run
	flags []flags
	ends  []int32

	// Candidates for which one rendering of the prompt is matched.
	places []int
	among  []block.EndpointID
	found  []block.Run

	checked []checkedEnd
}

func (s *scratch) reset() {
	s.ids, s.since, s.runs = s.ids[:0], s.since[:0], s.runs[:0]
	s.all, s.flags = s.all[:0], s.flags[:0]
}

// pick selects candidates by index.
func (s *scratch) pick(wanted func(k int) bool) {
	s.places, s.among, s.found = s.places[:0], s.among[:0], s.found[:0]
	for k, id := range s.ids {
		if wanted(k) {
			s.places, s.among, s.found = append(s.places, k), append(s.among, id), append(s.found, block.Run{})
		}
	}
}

// always is a time that includes every record of the approximate index.
const always = -1 << 63

// Match implements picker.Matcher.
func (m *Matcher) Match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	s := m.scratch.Get().(*scratch)
	defer m.scratch.Put(s)
	s.reset()
	now, records := m.o.Now(), m.trialsOf(r)
	for i, ep := range eps {
		since, f, none := int64(always), records.of(ep.ID)|m.classFlags(records, r, ep.ID), int32(0)
		rendered := len(m.exactOf(r, ep.ID)) > 0
		read := m.o.Read(ep.ID)
		if !rendered || read == knowledge.Unreadable {
			none = -1
		}
		if rendered && f&flagGuess == 0 && read.Followed() && m.holdsAll(ep.ID) {
			since = m.young(ep, now)
		}
		s.ids, s.runs, s.since = append(s.ids, ep.ID), append(s.runs, block.Run{}), append(s.since, since)
		s.all, s.flags = append(s.all, block.Run{}), append(s.flags, f)
		held[i] = cycle.PrefixMatch{Precise: none, Approximate: -1, Looked: true}
		if f&flagWatch != 0 && rendered {
			held[i].WantUsage, held[i].LastEvent = true, m.recentEvents(ep.ID, now)
		}
	}
	m.matchPrecise(r, s, eps, held)
	m.matchChunks(r, s, eps, held)
}

// matchPrecise sets held to the precise index's runs. If a complete prompt is cached, an engine
// reuses one block less, because it recomputes the last token.
func (m *Matcher) matchPrecise(r *request.Request, s *scratch, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	for variant := -1; variant < len(r.Variants); variant++ {
		qs := r.Exact
		if variant >= 0 {
			qs = r.Variants[variant].Exact
		}
		if len(qs) == 0 {
			continue
		}
		s.pick(func(k int) bool { return m.variantOf(r, eps[k].ID) == variant })
		if len(s.places) == 0 {
			continue
		}
		for i := range qs {
			m.o.Index.Match(qs[i], s.among, s.found)
			m.trimUnsafe(r, s, qs[i])
			for j, k := range s.places {
				run := &s.found[j]
				held[k].Precise += run.Total()
				if int(run.Bytes) == len(qs[i].Bytes) && !run.Ruled { // rules already exclude it
					takeOff(run, int32(blockOf(eps[k].BlockSize())))
				}
				add(&held[k].Run, run)
			}
		}
	}
	for k := range held {
		expect(&held[k].Run)
	}
}

// matchChunks replaces runs for which the approximate index has more, or was right where they were
// wrong.
func (m *Matcher) matchChunks(r *request.Request, s *scratch, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	if len(r.ChunkKeys) == 0 {
		return
	}
	m.o.Approx.MatchBoth(r.ChunkKeys, s.ids, s.since, s.runs, s.all)
	for k := range held {
		if s.all[k].Bytes == 0 && s.runs[k].Bytes == 0 { // as at most endpoints of a large pool: no need to read more
			held[k].Approximate = 0
			if s.flags[k]&flagGuess != 0 {
				held[k].Run = s.runs[k]
				held[k].Run.Tokens = [block.NumTiers]int32{}
			}
			continue
		}
		size := int32(blockOf(eps[k].BlockSize()))
		held[k].Approximate = inTokens(&s.all[k], r.ChunkBytes(), float64(r.InputTokens), size)
		guess := s.runs[k]
		tokens := m.reuses.reduced(s.ids[k], inTokens(&guess, r.ChunkBytes(), lengthOf(r, &held[k]), size))
		guess.Tokens = [block.NumTiers]int32{tokens - tokens%size}
		seen := held[k].Run.Total()
		if seen > 0 {
			seen += size // one block more is within the estimate's error
		}
		if s.flags[k]&flagGuess != 0 || guess.Total() > seen {
			held[k].Run = guess
		}
	}
}

// inTokens converts a run of chunks to tokens, in proportion to the prompt's bytes and tokens.
// Engines reuse whole blocks, and always compute the last token.
func inTokens(run *block.Run, bytes int, tokens float64, size int32) int32 {
	n := int32(float64(run.Bytes) / float64(bytes) * tokens)
	n = max(min(n, int32(tokens)-1), 0)
	return n - n%size
}

// lengthOf returns the prompt's length in tokens. If the precise index has most of the prompt, its
// match gives the exact bytes per token; the estimate would be off by several blocks for a long
// prompt.
func lengthOf(r *request.Request, h *cycle.PrefixMatch) float64 {
	if seen := int(h.Run.Bytes); seen > 0 && 2*seen >= r.PromptBytes && r.PromptBytes > 0 {
		return math.Round(float64(h.Precise) * float64(r.PromptBytes) / float64(seen))
	}
	return float64(r.InputTokens)
}

// recentEvents returns the time of an endpoint's last events, 0 if that is too long ago to be
// current.
func (m *Matcher) recentEvents(id block.EndpointID, now time.Time) int64 {
	if at := m.o.LastEvent(id); at > now.Add(-abreast).UnixNano() {
		return at
	}
	return 0
}

// maxQueued bounds the additional validity of a decision by its queue time.
const maxQueued = 2 * time.Minute

// young returns the time, in nanoseconds, since which decisions for ep may still lack events: a
// request that waits for its prefill stores nothing.
func (m *Matcher) young(ep *endpoint.Endpoint, now time.Time) int64 {
	return now.Add(-m.o.Speculate - min(m.o.Wait(ep, now), maxQueued)).UnixNano()
}

// IndexAccepted reports whether the precise index is used for an endpoint. Every decision calls it
// for each endpoint.
func (m *Matcher) IndexAccepted(id block.EndpointID) bool {
	return m.o.Read(id).Followed() && m.holdsAll(id)
}

// holdsAll reports whether the index can represent everything that an endpoint holds.
func (m *Matcher) holdsAll(id block.EndpointID) bool {
	return !m.o.Index.Overflowed(id) && !m.o.Profiles.salted(id)
}

// expect reduces the best rank's run to the expectation over all ranks.
func expect(run *block.Run) { takeOff(run, run.Missing) }

// takeOff removes that many tokens from a run, slowest tier first.
func takeOff(run *block.Run, missing int32) {
	if missing <= 0 {
		return
	}
	missing = min(missing, run.Total())
	for t := len(run.Tokens) - 1; t >= 0 && missing > 0; t-- {
		n := min(missing, run.Tokens[t])
		run.Tokens[t] -= n
		missing -= n
	}
}

func add(a, b *block.Run) {
	a.Missing += b.Missing
	a.Worst += b.Worst
	a.Blocks += b.Blocks
	a.Bytes += b.Bytes
	for t := range a.Tokens {
		a.Tokens[t] += b.Tokens[t]
	}
}

// Chosen implements picker.Matcher.
func (m *Matcher) Chosen(r *request.Request, ep *endpoint.Endpoint) {
	if r.CacheSalt != "" {
		m.o.Profiles.salt(ep.ID)
	}
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
func (m *Matcher) Finished(r *request.Request, ep *endpoint.Endpoint, h cycle.PrefixMatch, o request.Outcome) {
	if o.Status >= 400 || (o.Status == 0 && !o.Complete) {
		// The engine failed or rejected the request, so it computed nothing and its cache is
		// unchanged.
		before := float64(h.Run.Total()) / float64(max(r.InputTokens, 1))
		m.o.Approx.Truncate(ep.ID, r.ChunkKeys, int(before*float64(r.ChunkBytes())))
		return
	}
	if o.Usage.Seen && r.PromptBytes > 0 && m.o.Models != nil {
		m.o.Models.learn(r.Target, r.PromptBytes, o.Usage.PromptTokens)
	}
	if h.Looked && h.WantUsage {
		m.answeredClass(r, ep)
	}
	if h.Looked && r.Kind != request.KindOther {
		m.auditsOf(r).with(ep.ID, func(rec *record) { rec.ended(h.Precise < 0) })
	}
	if h.Looked && h.Approximate >= 0 && !o.Usage.Transferred && !r.SkipsCache() && (h.Precise < 0 || !m.IndexAccepted(ep.ID)) {
		m.reuses.make(ep.ID).ended(int(h.Approximate), max(blockOf(ep.BlockSize()), usualSlack))
	}
	if h.Looked && o.Complete && (h.WantUsage || o.Usage.Seen) {
		// Also count answers without usage, so that an engine that never reports it is not watched
		// forever.
		records := m.trialsOf(r)
		records.all.with(ep.ID, func(rec *record) { rec.asked++ })
		records.apart.with(ep.ID, func(rec *record) { rec.asked++ })
	}
	switch {
	case !h.Looked:
	case o.Usage.Seen && o.Usage.PromptTokens > 0:
		m.check(r, ep, h, o.Usage)
	case h.WantUsage && o.Complete:
		m.auditsOf(r).with(ep.ID, func(rec *record) { rec.blind = min(rec.blind+1, memory) })
	}
}

// Left removes the state of endpoints that left the pool.
func (m *Matcher) Left(eps []*endpoint.Endpoint) {
	for _, ep := range eps {
		m.o.Approx.Forget(ep.ID)
		if m.o.Profiles != nil {
			m.o.Profiles.Forget(ep.ID)
		}
		m.reuses.forget(ep.ID)
		m.sizes.Delete(ep.ID)
		m.unlike.Range(func(key, _ any) bool {
			if key.(unlikeKey).id == ep.ID {
				m.unlike.Delete(key)
			}
			return true
		})
		m.audits.Range(func(_, a any) bool {
			a.(*audits).forget(ep.ID)
			return true
		})
	}
}
