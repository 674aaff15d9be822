package prefix

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Parameters for comparing engines' own counters with the expected reuse of sent requests.
const (
	reuseMemory  = 16          // half-life in requests with expected reuse
	reuseFade    = time.Minute // half-life in time
	reuseEnough  = 8           // minimum such requests for a conclusion
	reuseLittle  = .5          // share of the expectation below which predictions are reduced to it
	reuseRegular = .75         // share from which they are not reduced

	reuseAnswers = 4               // answers with cached tokens from which the page is ignored
	reuseRecent  = 5 * time.Minute // how long they count
)

// Reused holds an engine's cache counters since its start.
type Reused struct {
	Tokens   float64 // cached prompt tokens
	Counts   bool    // the page has that counter
	Uncached bool    // prefix caching is disabled
}

// reuse compares an engine's actual reuse with the expectation for sent requests, if neither events
// nor answers show it. The engine's counter includes all its requests, the expectation only this
// replica's. Too little reuse is therefore certain, while sufficient reuse may be due to others.
type reuse struct {
	expected atomic.Int64  // tokens of requests that ended since the last page
	requests atomic.Int64  // of those, requests with expected reuse
	cut      atomic.Uint32 // thousandths of predictions to remove
	answers  atomic.Int64  // answers that reported cached tokens
	answered atomic.Int64  // time of the last one, ns
	disputed atomic.Bool   // the page would reduce predictions, but answers report cached tokens

	mu    sync.Mutex
	at    time.Time // of the last page; zero: none
	last  float64   // its count
	want  float64   // tokens
	found float64   // tokens
	n     float64   // requests
	off   bool      // the page shows that caching is disabled
}

// reuses holds the state of every endpoint. Reads take no lock.
type reuses struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*reuse] // by id
}

func (r *reuses) of(id block.EndpointID) *reuse {
	if all := r.all.Load(); all != nil && int(id) < len(*all) {
		return (*all)[id]
	}
	return nil
}

// make returns the state of an endpoint, creating it if needed.
func (r *reuses) make(id block.EndpointID) *reuse {
	if u := r.of(id); u != nil {
		return u
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.of(id); u != nil {
		return u
	}
	u := &reuse{}
	r.set(id, u)
	return u
}

func (r *reuses) set(id block.EndpointID, u *reuse) {
	var next []*reuse
	if all := r.all.Load(); all != nil {
		next = slices.Clone(*all)
	}
	for int(id) >= len(next) {
		next = append(next, nil)
	}
	next[id] = u
	r.all.Store(&next)
}

func (r *reuses) forget(id block.EndpointID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of(id) != nil {
		r.set(id, nil)
	}
}

// reduced returns a prediction for an endpoint after the reduction, in tokens.
func (r *reuses) reduced(id block.EndpointID, tokens int32) int32 {
	u := r.of(id)
	if u == nil {
		return tokens
	}
	return int32(int64(tokens) * int64(whole-u.cut.Load()) / whole)
}

const whole = 1000

// ended records the expected reuse of a request that has ended.
func (u *reuse) ended(tokens, slack int) {
	if tokens > slack {
		u.expected.Add(int64(tokens))
		u.requests.Add(1)
	}
}

// report records an answer that reported cached tokens.
func (u *reuse) report(now time.Time) {
	u.answers.Add(1)
	u.answered.Store(now.UnixNano())
}

// answersCount reports whether answers report cached tokens. The page's counters are then ignored,
// because an answer refers to a single request and its prediction.
func (u *reuse) answersCount(now time.Time) bool {
	return u.answers.Load() >= reuseAnswers && now.UnixNano()-u.answered.Load() < int64(reuseRecent)
}

// counted processes the engine's page. Its conclusion does not count if answers report cached
// tokens.
func (u *reuse) counted(r Reused, now time.Time) (changed bool) {
	was := u.cut.Load()
	changed = u.countedAlone(r, now)
	cut := u.cut.Load()
	answers := u.answersCount(now)
	if u.disputed.Store(answers && cut > 0); !answers {
		return changed
	}
	u.cut.Store(0)
	return was > 0
}

// countedAlone processes the engine's page. It reports whether the reduction was switched on or
// off.
func (u *reuse) countedAlone(r Reused, now time.Time) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	want, n := float64(u.expected.Swap(0)), float64(u.requests.Swap(0))
	was := u.cut.Load()
	if u.off = r.Uncached; u.off {
		u.at, u.want, u.found, u.n = time.Time{}, 0, 0, 0
		u.cut.Store(whole)
		return was == 0
	}
	if was == whole && u.n == 0 {
		u.cut.Store(0) // caching was disabled before
	}
	if !r.Counts || u.at.IsZero() || r.Tokens < u.last {
		u.at, u.last = now, r.Tokens
		return was > 0 && u.cut.Load() == 0
	}
	old := math.Exp2(-n/reuseMemory - float64(now.Sub(u.at))/float64(reuseFade))
	u.want, u.found, u.n = u.want*old+want, u.found*old+r.Tokens-u.last, u.n*old+n
	u.at, u.last = now, r.Tokens
	if u.n < reuseEnough {
		return was > 0 && u.cut.Load() == 0
	}
	switch share := u.found / u.want; {
	case share < reuseLittle:
		u.cut.Store(whole - uint32(share*whole))
	case share >= reuseRegular:
		u.cut.Store(0)
	}
	return (was == 0) != (u.cut.Load() == 0)
}

// words returns the reason and remedy for reduced predictions.
func (u *reuse) words() (reason, do string) {
	cut := u.cut.Load()
	if cut == 0 {
		return "", ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.off {
		return "its engine reports that prefix caching is off, so no cache hits are predicted", "remove --no-enable-prefix-caching from the engine to enable it"
	}
	return fmt.Sprintf("its engine counts %d%% of the cached tokens predicted from the requests sent to it; predictions are reduced to that", (whole-cut)/10),
		"check that prefix caching is enabled and that the cache is large enough"
}

// Counted processes an engine's page. If the endpoint is predicted by sent prompts, and its engine
// reuses much less, predictions are reduced to the actual reuse.
func (m *Matcher) Counted(ep *endpoint.Endpoint, r Reused) {
	if !r.Counts && !r.Uncached && m.reuses.of(ep.ID) == nil {
		return
	}
	u := m.reuses.make(ep.ID)
	if !u.counted(r, m.o.Now()) {
		return
	}
	if reason, do := u.words(); reason != "" {
		m.o.Log.Warn("predicted cache hits do not match the engine's answers", "endpoint", ep.Address, "reason", reason, "do", do)
	} else {
		m.o.Log.Info("predicted cache hits match the engine's answers again", "endpoint", ep.Address)
	}
}
