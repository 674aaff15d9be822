package prefix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// maxClasses bounds the classes of one model. Requests of further classes are not distinguished.
const maxClasses = 128

// classKey identifies requests that engines may treat alike. A class that is a small part of the
// traffic is audited separately, over all endpoints of a profile.
type classKey struct {
	profile prompt.Profile
	shape   shape
	salted  bool
	client  string
}

// Thresholds for classes. Their requests go to all endpoints, so one endpoint with wrong
// predictions must not affect the class.
const (
	classWrong = .85 // share of under-predictions from which a class is wrong
	classFair  = .75 // share at an endpoint above which its comparisons do not count for classes
	classWatch = 12  // answers requested per class
)

// class is the record of one class.
type class struct {
	mu      sync.Mutex
	rec     record
	asked   int
	example string // an under-predicted request
	wrong   atomic.Bool
	guess   atomic.Bool // approximate matching is more accurate
	watch   atomic.Bool
}

// classes are the classes of one model. Readers take no lock.
type classes struct {
	mu  sync.Mutex
	all atomic.Pointer[map[classKey]*class]
}

// of returns a class, or nil.
func (c *classes) of(k classKey) *class {
	if all := c.all.Load(); all != nil {
		return (*all)[k]
	}
	return nil
}

// full reports whether no further class is distinguished.
func (c *classes) full() bool {
	all := c.all.Load()
	return all != nil && len(*all) >= maxClasses
}

// make returns a class, creating it if needed; nil if there are too many.
func (c *classes) make(k classKey) *class {
	if cl := c.of(k); cl != nil {
		return cl
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := map[classKey]*class{}
	if all := c.all.Load(); all != nil {
		next = maps.Clone(*all)
	}
	if next[k] == nil && len(next) < maxClasses {
		next[k] = new(class)
		next[k].watch.Store(true)
		c.all.Store(&next)
	}
	return next[k]
}

func (m *Matcher) classKeyOf(r *request.Request, s shape, id block.EndpointID) classKey {
	return classKey{profile: m.o.Profiles.Of(id), shape: s, salted: r.CacheSalt != "", client: r.Client}
}

// classFlags returns the flags of a request's class at an endpoint.
func (m *Matcher) classFlags(t trials, r *request.Request, id block.EndpointID) (f flags) {
	k := m.classKeyOf(r, t.shape, id)
	if !k.apart() {
		return 0
	}
	cl := t.all.classes.of(k)
	if cl == nil && !t.all.classes.full() || cl != nil && cl.watch.Load() {
		f |= flagWatch
	}
	if cl != nil && cl.guess.Load() {
		f |= flagGuess
	}
	return f
}

// answeredClass counts a requested answer of the request's class.
func (m *Matcher) answeredClass(r *request.Request, ep *endpoint.Endpoint) {
	t := m.trialsOf(r)
	if k := m.classKeyOf(r, t.shape, ep.ID); k.apart() {
		if cl := t.all.classes.make(k); cl != nil {
			cl.answered()
		}
	}
}

// checkClass records a comparison for the request's class. It reports whether the class explains a
// wrong prediction, which then does not count against the endpoint.
func (m *Matcher) checkClass(t trials, r *request.Request, ep *endpoint.Endpoint, c comparison) (explained bool) {
	fair := false
	t.all.with(ep.ID, func(rec *record) { fair = rec.n >= enough && rec.under <= classFair && rec.wrong != over })
	k := m.classKeyOf(r, t.shape, ep.ID)
	if !k.apart() {
		return false
	}
	cl := t.all.classes.make(k)
	if cl == nil {
		return false
	}
	cl.mu.Lock()
	was := cl.wrong.Load()
	short := false
	if fair || was {
		short = cl.enter(c, r, m.o.Now())
	}
	wrong, example := cl.wrong.Load(), cl.example
	cl.mu.Unlock()
	switch {
	case wrong && !was:
		m.o.Log.Warn("predicted cache hits of one request class do not match the engine's answers", "model", t.all.model, "requests", k.String(), "example", example)
	case was && !wrong:
		m.o.Log.Info("predicted cache hits of one request class match the engine's answers again", "model", t.all.model, "requests", k.String())
	}
	return wrong && short
}

// enter records a comparison and reports whether it was an under-prediction. The caller holds mu.
func (cl *class) enter(c comparison, r *request.Request, now time.Time) (short bool) {
	out := cl.rec.add(c, now)
	if out.outcome == under {
		cl.example = fmt.Sprintf("request %s: %d of %d tokens expected in cache, %d found", budget.PrintableName(r.ID), c.precise, c.prompt, c.cached)
	}
	switch {
	case cl.rec.n >= enough && cl.rec.under >= classWrong:
		cl.wrong.Store(true)
	case cl.rec.under <= rightShare:
		cl.wrong.Store(false)
	}
	cl.guess.Store(cl.wrong.Load() && cl.rec.errors[1] < cl.rec.errors[0])
	return out.outcome == under
}

// answered counts a requested answer.
func (cl *class) answered() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.asked++; cl.asked >= classWatch {
		cl.watch.Store(false)
	}
}

// apart reports whether the class distinguishes requests beyond their shape.
func (k classKey) apart() bool { return k.client != "" || k.salted }

// String describes the requests of a class.
func (k classKey) String() string {
	name := k.shape.String()
	if k.salted {
		name += " with a cache salt"
	}
	if k.client != "" {
		name += " of client " + budget.PrintableName(k.client)
	}
	return name
}

// classVerdicts returns the verdicts on under-predicted classes at endpoints of ep's profile,
// except those whose whole shape, or all prompts, are under-predicted there.
func (m *Matcher) classVerdicts(a *audits, ep *endpoint.Endpoint, all []Verdict) (out []Verdict) {
	list := a.classes.all.Load()
	if list == nil {
		return nil
	}
	for k, cl := range *list {
		if k.profile != m.o.Profiles.Of(ep.ID) || slices.ContainsFunc(all, func(v Verdict) bool { return v.Prompts == k.shape.String() }) {
			continue
		}
		cl.mu.Lock()
		if r := &cl.rec; cl.wrong.Load() {
			v := Verdict{
				Model: a.model, Prompts: k.String(), Right: r.total[right], Over: r.total[over], Under: r.total[under], Since: r.since,
				state: m.o.Read(ep.ID), Uses: usesEvents,
			}
			if cl.guess.Load() {
				v.Uses = usesSent
			}
			v.State = v.state.String()
			v.Reason = fmt.Sprintf("%s: engines had more cached than was expected (%s)", v.Prompts, cl.example)
			v.Do = "compare these requests with others"
			out = append(out, v)
		}
		cl.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Verdict) int { return cmp.Compare(a.Prompts, b.Prompts) })
	return out
}
