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

// How engines' own counts are held against what was expected of what was sent to them.
const (
	reuseMemory  = 16          // requests that were expected to reuse something: half of the weight of older ones is gone
	reuseFade    = time.Minute // and of any after so long
	reuseEnough  = 8           // such requests before anything is concluded
	reuseLittle  = .5          // share of what was expected below which predictions are cut to it
	reuseRegular = .75         // share from which they are not

	reuseAnswers = 4               // answers that report cached tokens before the page is left aside
	reuseRecent  = 5 * time.Minute // for which they count
)

// Reused is what an engine's page says, since its start, of prompts that it has computed.
type Reused struct {
	Tokens   float64 // that it had cached
	Counts   bool    // it says how many
	Uncached bool    // it says that it caches no prefixes
}

// reuse is how an engine's reuse of what was sent to it compares with what was expected,
// where neither events nor answers say. All requests that reach an engine count on its
// side, and those of this replica alone on ours: so too little is certain, and as much as
// was expected may be others'.
type reuse struct {
	expected atomic.Int64  // tokens, of requests that ended since the last page
	requests atomic.Int64  // of them, those that were expected to reuse something
	cut      atomic.Uint32 // thousandths of predictions that are not believed
	answers  atomic.Int64  // that reported cached tokens
	answered atomic.Int64  // when the last one did, ns
	disputed atomic.Bool   // the page would cut predictions, and answers report cached tokens

	mu    sync.Mutex
	at    time.Time // of the last page; zero: none
	last  float64   // its count
	want  float64   // tokens
	found float64   // tokens
	n     float64   // requests
	off   bool      // the page says that nothing is cached
}

// reuses has those of every endpoint. It is read without a lock.
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

// make returns that of an endpoint, a new one if there is none.
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

// believed returns what is left of a prediction for an endpoint, in tokens.
func (r *reuses) believed(id block.EndpointID, tokens int32) int32 {
	u := r.of(id)
	if u == nil {
		return tokens
	}
	return int32(int64(tokens) * int64(whole-u.cut.Load()) / whole)
}

const whole = 1000

// ended notes what was expected of a request that has ended.
func (u *reuse) ended(tokens, slack int) {
	if tokens > slack {
		u.expected.Add(int64(tokens))
		u.requests.Add(1)
	}
}

// report notes an answer that reports how many tokens were cached.
func (u *reuse) report(now time.Time) {
	u.answers.Add(1)
	u.answered.Store(now.UnixNano())
}

// answersCount reports whether answers report cached tokens: what a page counts is not used
// then, because an answer is about one request and its prediction.
func (u *reuse) answersCount(now time.Time) bool {
	return u.answers.Load() >= reuseAnswers && now.UnixNano()-u.answered.Load() < int64(reuseRecent)
}

// counted takes what the engine's page says. What it concludes does not count where answers
// report cached tokens.
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

// countedAlone takes what the engine's page says. It reports whether predictions were cut and
// are no more, or the other way round.
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
		u.cut.Store(0) // it was off, and is no more
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

// words say what is wrong with an engine whose predictions are cut, and what to do.
func (u *reuse) words() (reason, do string) {
	cut := u.cut.Load()
	if cut == 0 {
		return "", ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.off {
		return "its engine says that it caches no prefixes, so that it is expected to have none", "leave out --no-enable-prefix-caching there, if it should"
	}
	return fmt.Sprintf("of what was sent there its engine counts %d%% of the cached tokens that were expected, and no more is expected now", (whole-cut)/10),
		"see that it caches prefixes, and that its cache is large enough"
}

// Counted takes what an engine's page says of its cache. Where the endpoint is known by what
// was sent there, and its engine finds much less than that, predictions are cut to what
// it finds.
func (m *Matcher) Counted(ep *endpoint.Endpoint, r Reused) {
	if !r.Counts && !r.Uncached && m.reuses.of(ep.ID) == nil {
		return
	}
	u := m.reuses.make(ep.ID)
	if !u.counted(r, m.o.Now()) {
		return
	}
	if reason, do := u.words(); reason != "" {
		m.o.Log.Warn("predictions do not come true", "endpoint", ep.Address, "reason", reason, "do", do)
	} else {
		m.o.Log.Info("predictions come true", "endpoint", ep.Address)
	}
}
