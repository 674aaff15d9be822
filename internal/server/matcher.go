package server

import (
	"slices"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
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
	// wait is how long requests queue at an endpoint for their prefill; nil: not at all.
	wait func(ep *endpoint.Endpoint, now time.Time) time.Duration
	// learn is told how many tokens an engine made of a rendered prompt.
	learn func(model string, bytes, tokens int)
	// model returns the model of a name, nil when it is not known.
	model    func(name string) *prompt.Model
	recorded func(ep *endpoint.Endpoint, keys []indexer.BlockKey, at time.Time) // tells peers; may be nil
	scratch  sync.Pool
}

type matchScratch struct {
	ids   []indexer.EndpointID
	since []int64
	runs  []indexer.Run
	ends  []int32

	checked []checkedEnd
}

func newMatcher() *matcher {
	return &matcher{scratch: sync.Pool{New: func() any { return new(matchScratch) }}}
}

// maxQueued bounds how long a queue makes a decision count.
const maxQueued = 2 * time.Minute

// queued is how much longer than usual the events of a decision may take: a
// request that waits stores nothing before its turn.
func (m *matcher) queued(ep *endpoint.Endpoint, now time.Time) time.Duration {
	if m.wait == nil {
		return 0
	}
	return min(m.wait(ep, now), maxQueued)
}

// always makes every record of the approximate index count.
const always = -1 << 63

// Match implements picker.Matcher.
func (m *matcher) Match(r *request.Request, eps []*endpoint.Endpoint, runs []indexer.Run) {
	s := m.scratch.Get().(*matchScratch)
	defer m.scratch.Put(s)
	s.ids, s.since, s.runs = s.ids[:0], s.since[:0], s.runs[:0]
	now := m.now()
	for _, ep := range eps {
		s.ids = append(s.ids, ep.ID)
		s.runs = append(s.runs, indexer.Run{})
		if len(r.Exact) > 0 && m.exact(ep.ID) {
			s.since = append(s.since, now.Add(-m.speculate-m.queued(ep, now)).UnixNano())
		} else {
			s.since = append(s.since, always)
		}
	}
	for i := range r.Exact {
		m.index.Match(r.Exact[i], s.ids, s.runs)
		m.trimUnsafe(r, s, r.Exact[i])
		for k := range runs {
			add(&runs[k], &s.runs[k])
		}
	}
	r.Doubted = r.Doubted[:0]
	for k := range runs {
		if len(r.Exact) > 0 && s.since[k] == always {
			r.Doubted = append(r.Doubted, request.DoubtedRun{Endpoint: s.ids[k], Tokens: runs[k].Total()})
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

// alignBlocks is how many blocks before the end of a run are checked, and
// alignEnds at how many places a prompt's runs may end for the check: each costs some
// microseconds. At further places only doubtful ends are checked.
const (
	alignBlocks = 8
	alignEnds   = 8
)

// checkedEnd is how many blocks to take back from runs that end at a byte.
type checkedEnd struct{ at, drop int32 }

// trimUnsafe takes back the last blocks of runs that the engine, which tokenizes
// the whole prompt, does not find: blocks that end inside a token of the request,
// or hold generated tokens that are not those of their text.
func (m *matcher) trimUnsafe(r *request.Request, s *matchScratch, q indexer.Query) {
	p := m.model(r.Target)
	if p == nil {
		return
	}
	s.ends, s.checked = s.ends[:0], s.checked[:0]
	for k := range s.runs {
		run := &s.runs[k]
		if run.Blocks == 0 {
			continue
		}
		at := slices.IndexFunc(s.checked, func(c checkedEnd) bool { return c.at == run.Bytes })
		if at < 0 {
			doubtful := run.Cut || !p.AtWord(q.Bytes, int(run.Bytes))
			if len(s.checked) >= alignEnds && !doubtful {
				continue
			}
			at = len(s.checked)
			s.checked = append(s.checked, checkedEnd{run.Bytes, m.misaligned(p, s, q, run)})
		}
		shorten(run, s.checked[at].drop, s.ends)
	}
}

// misaligned returns how many of the last blocks of a run are not made of the
// prompt's own tokens.
func (m *matcher) misaligned(p *prompt.Model, s *matchScratch, q indexer.Query, run *indexer.Run) int32 {
	n := int(run.Blocks)
	if len(s.ends) < n+1 {
		s.ends = m.index.Ends(q, run.Bytes, append(s.ends[:0], 0))
	}
	if n >= len(s.ends) {
		return 0
	}
	from := max(0, n-alignBlocks)
	return int32(n - from - p.Aligned(q.Bytes, s.ends[from:n+1], int(run.Total()/run.Blocks)))
}

// shorten takes drop blocks off the end of a run.
func shorten(run *indexer.Run, drop int32, ends []int32) {
	if drop <= 0 || int(run.Blocks) >= len(ends) {
		return
	}
	tokens := run.Total() / run.Blocks * drop
	run.Blocks -= drop
	run.Bytes = ends[run.Blocks]
	for t := len(run.Tokens) - 1; t >= 0 && tokens > 0; t-- {
		n := min(tokens, run.Tokens[t])
		run.Tokens[t] -= n
		tokens -= n
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
func (m *matcher) Chosen(r *request.Request, ep *endpoint.Endpoint) {
	m.lookUp(r, ep)
	if len(r.ChunkKeys) == 0 {
		return
	}
	now := m.now()
	m.approx.Record(ep.ID, r.ChunkKeys, now.UnixNano())
	if m.recorded != nil {
		m.recorded(ep, r.ChunkKeys, now)
	}
}

// lookUp notes what Match saw in the index at an endpoint that is not believed,
// for the audit to compare with what the engine reports: that ends the doubt.
func (m *matcher) lookUp(r *request.Request, ep *endpoint.Endpoint) {
	r.Precise = -1
	if len(r.Exact) == 0 || m.exact(ep.ID) {
		return
	}
	for _, d := range r.Doubted {
		if d.Endpoint == ep.ID {
			r.Precise = int(d.Tokens)
		}
	}
}

// Finished implements picker.Matcher.
func (m *matcher) Finished(r *request.Request, ep *endpoint.Endpoint, predicted indexer.Run, o picker.Outcome) {
	if o.Status >= 500 || (o.Status == 0 && !o.Complete) {
		// It did not run there: what was there before is all that is.
		before := float64(predicted.Total()) / float64(max(r.InputTokens, 1))
		m.approx.Truncate(ep.ID, r.ChunkKeys, int(before*float64(len(r.Chunks.Bytes))))
		return
	}
	if o.Usage.Seen && r.PromptBytes > 0 {
		m.learn(r.Target, r.PromptBytes, o.Usage.PromptTokens)
	}
	if o.Usage.CachedSeen && o.Usage.PromptTokens > 0 {
		m.audit.check(r, ep, predicted, o.Usage)
	}
}
