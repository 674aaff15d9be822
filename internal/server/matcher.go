package server

import (
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
)

// matcher answers the picker from the precise index where an endpoint's
// knowledge is exact, and from the approximate one otherwise. Decisions are
// entered into the approximate index at once: for exact endpoints they count
// as speculative entries while they are young. It is safe for concurrent use.
type matcher struct {
	index  *indexer.Index
	approx *indexer.Approx
	// exact reports whether the index is to be believed about an endpoint.
	exact func(indexer.EndpointID) bool
	// speculate is how long a decision stands in for the events that will confirm it.
	speculate time.Duration
	now       func() time.Time
	audit     *auditor
	recorded  func(ep *picker.Endpoint, keys []indexer.BlockKey, at time.Time) // tells peers; may be nil
	scratch   sync.Pool
}

type matchScratch struct {
	ids   []indexer.EndpointID
	since []int64
	runs  []indexer.Run
}

func newMatcher() *matcher {
	return &matcher{scratch: sync.Pool{New: func() any { return new(matchScratch) }}}
}

// always makes every record of the approximate index count.
const always = -1 << 63

// Match implements picker.Matcher.
func (m *matcher) Match(r *picker.Request, eps []*picker.Endpoint, runs []indexer.Run) {
	s := m.scratch.Get().(*matchScratch)
	defer m.scratch.Put(s)
	s.ids, s.since, s.runs = s.ids[:0], s.since[:0], s.runs[:0]
	young := m.now().Add(-m.speculate).UnixNano()
	for _, ep := range eps {
		s.ids = append(s.ids, ep.ID)
		s.runs = append(s.runs, indexer.Run{})
		if len(r.Exact) > 0 && m.exact(ep.ID) {
			s.since = append(s.since, young)
		} else {
			s.since = append(s.since, always)
		}
	}
	for i := range r.Exact {
		m.index.Match(r.Exact[i], s.ids, s.runs)
		for k := range runs {
			add(&runs[k], &s.runs[k])
		}
	}
	if len(r.ChunkKeys) == 0 {
		return
	}
	m.approx.Match(r.ChunkKeys, s.ids, s.since, s.runs)
	for k := range runs {
		// Chunks are bytes of the raw prompt: tokens in proportion.
		guess := s.runs[k]
		guess.Tokens = [indexer.NumTiers]int32{int32(float64(guess.Bytes) / float64(len(r.Chunks.Bytes)) * float64(r.InputTokens))}
		if guess.Total() > runs[k].Total() {
			runs[k] = guess
		}
	}
}

func add(a, b *indexer.Run) {
	a.Blocks += b.Blocks
	a.Bytes += b.Bytes
	for t := range a.Tokens {
		a.Tokens[t] += b.Tokens[t]
	}
}

// Chosen implements picker.Matcher.
func (m *matcher) Chosen(r *picker.Request, ep *picker.Endpoint) {
	if len(r.ChunkKeys) == 0 {
		return
	}
	now := m.now()
	m.approx.Record(ep.ID, r.ChunkKeys, now.UnixNano())
	if m.recorded != nil {
		m.recorded(ep, r.ChunkKeys, now)
	}
}

// Finished implements picker.Matcher.
func (m *matcher) Finished(r *picker.Request, ep *picker.Endpoint, predicted indexer.Run, o picker.Outcome) {
	if o.Status >= 500 || (o.Status == 0 && !o.Complete) {
		m.approx.Truncate(ep.ID, r.ChunkKeys, 0) // it did not run there
		return
	}
	if o.Usage.CachedSeen && o.Usage.PromptTokens > 0 {
		m.audit.check(r, ep, predicted, o.Usage)
	}
}
