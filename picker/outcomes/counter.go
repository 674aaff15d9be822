package outcomes

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// Of series.
const (
	maxModels     = 200 // of the pool
	modelsOfOne   = 32  // of one endpoint
	otherModels   = "other"
	firstStatus   = 100
	classNone     = 0 // no status was seen
	numClasses    = 6
	causeRefused  = "refused"   // not placed
	causeNoAnswer = "no_answer" // no endpoint could be reached, or all broke off before the answer
	causeFull     = "full"      // the engine has no room
	causeEngine   = "engine"    // the engine answered with status 500 or above
	causeInside   = "in_answer" // the engine reported an error inside of its answer
)

var userCauses = [...]string{causeRefused, causeNoAnswer, causeFull, causeEngine, causeInside}

var classes = [numClasses]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// End is how a placed request ended.
type End struct {
	Endpoint *endpoint.Endpoint // that served it last
	Model    string             // as the engine saw it
	Status   int                // 0: none was seen
	Complete bool               // the answer ended normally
	Broken   bool               // the engine reported an error inside of its answer
	// Cause is what the end said against the endpoint; None, Void: nothing.
	Cause health.Cause
	First time.Duration // to the first token; 0: it was not seen
	Whole time.Duration // to the end; 0: nobody saw it
}

// Counter counts how requests ended, for metrics that people look at and alert on.
// What users saw is counted apart from what endpoints did: a request that one
// endpoint failed and the next one answered is no error of a user. An answer that
// ended in the middle may be the client's doing, and is an error of neither.
//
// Labels are bounded: a model has a name when some endpoint is known to serve it,
// and at most so many have; all others are "other". Series of an endpoint are
// there as long as it is in the pool, those of a model as long as somebody serves it.
// A Tally is safe for concurrent use.
type Counter struct {
	pool *endpoint.Pool

	mu    sync.Mutex // guards the fields below, and what users holds
	rows  map[block.EndpointID]*tallyRow
	users map[string]*tallyUser
}

// tallyRow is what one endpoint did.
type tallyRow struct {
	mu      sync.Mutex
	address string
	models  []tallyModel
	first   histogram
	whole   histogram
}

type tallyModel struct {
	name    string
	classes [numClasses]uint64
}

// tallyUser is what users of one model saw.
type tallyUser struct {
	requests   uint64
	errors     [len(userCauses)]uint64
	unfinished uint64
}

// New returns a tally of the pool's endpoints, registered with reg unless that is
// nil.
func New(pool *endpoint.Pool, reg prometheus.Registerer) (*Counter, error) {
	t := &Counter{pool: pool, rows: map[block.EndpointID]*tallyRow{}, users: map[string]*tallyUser{}}
	pool.Subscribe(t.changed)
	if reg == nil {
		return t, nil
	}
	return t, reg.Register(t)
}

// changed drops what is known of endpoints that will not come back.
func (t *Counter) changed(c endpoint.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ep := range c.Dropped {
		delete(t.rows, ep.ID)
	}
}

// Ended counts a request that was placed.
func (t *Counter) Ended(e *End) {
	name := t.label(e.Model)
	if r := t.row(e.Endpoint); r != nil {
		r.ended(t.pool.Snapshot(), name, e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.user(name)
	u.requests++
	switch cause := e.users(); {
	case cause != "":
		u.errors[slices.Index(userCauses[:], cause)]++
	case !e.Complete:
		u.unfinished++
	}
}

// users names the error that the user saw, "" when there was none.
func (e *End) users() string {
	switch {
	case e.Status == 429, e.Status == 503 && e.Cause == health.Void:
		return causeFull
	case e.Cause == health.Broken:
		return causeNoAnswer
	case e.Status >= 500:
		return causeEngine
	case e.Broken:
		return causeInside
	}
	return ""
}

// Refused counts a request that was not placed. Those that their client did wrong,
// or gave up, are no errors.
func (t *Counter) Refused(model string, ofClient bool) {
	name := t.label(model)
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.user(name)
	u.requests++
	if !ofClient {
		u.errors[slices.Index(userCauses[:], causeRefused)]++
	}
}

// row returns the counts of an endpoint that is in the pool, or was a moment ago;
// nil for all others.
func (t *Counter) row(ep *endpoint.Endpoint) *tallyRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[ep.ID]
	if r == nil && t.pool.Snapshot().Lookup(ep.Address) != nil {
		r = &tallyRow{address: ep.Address, first: histogram{bounds: firstBounds}, whole: histogram{bounds: wholeBounds}}
		t.rows[ep.ID] = r
	}
	if r == nil || r.address != ep.Address {
		return nil
	}
	return r
}

func (r *tallyRow) ended(s *endpoint.Snapshot, model string, e *End) {
	class := classNone
	if e.Status >= firstStatus {
		class = min(e.Status/firstStatus, numClasses-1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models[r.model(s, model)].classes[class]++
	if class == 2 && e.First > 0 {
		r.first.observe(e.First)
	}
	if class == 2 && e.Complete && e.Whole > 0 {
		r.whole.observe(e.Whole)
	}
}

// model returns the place of a model, or of all others when there is no more room.
func (r *tallyRow) model(s *endpoint.Snapshot, name string) int {
	at := func(name string) int {
		return slices.IndexFunc(r.models, func(m tallyModel) bool { return m.name == name })
	}
	i := at(name)
	if i < 0 && len(r.models) >= modelsOfOne {
		r.dropUnserved(s)
	}
	if i < 0 && len(r.models) >= modelsOfOne {
		name = otherModels
		i = at(name)
	}
	if i < 0 {
		r.models = append(r.models, tallyModel{name: name})
		i = len(r.models) - 1
	}
	return i
}

// dropUnserved drops the models that nobody serves any more. The caller holds mu.
func (r *tallyRow) dropUnserved(s *endpoint.Snapshot) {
	r.models = slices.DeleteFunc(r.models, func(m tallyModel) bool { return m.name != otherModels && len(s.Serving(m.name)) == 0 })
}

// label returns the name of a model that some endpoint is known to serve.
func (t *Counter) label(model string) string {
	if len(t.pool.Snapshot().Serving(model)) == 0 {
		return otherModels
	}
	return model
}

// user returns what users of a model saw. The caller holds mu.
func (t *Counter) user(model string) *tallyUser {
	u := t.users[model]
	if u == nil && len(t.users) >= maxModels {
		t.dropUnserved()
		if len(t.users) >= maxModels {
			model = otherModels
			u = t.users[model]
		}
	}
	if u == nil {
		u = &tallyUser{}
		t.users[model] = u
	}
	return u
}

// dropUnserved makes room for other models. The caller holds mu.
func (t *Counter) dropUnserved() {
	s := t.pool.Snapshot()
	for name := range t.users {
		if name != otherModels && len(s.Serving(name)) == 0 {
			delete(t.users, name)
		}
	}
}
