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

// Limits and label values of series.
const (
	maxModels     = 200 // of the pool
	modelsOfOne   = 32  // of one endpoint
	otherModels   = "other"
	firstStatus   = 100
	classNone     = 0 // no status was seen
	numClasses    = 6
	causeRefused  = "refused"   // not placed
	causeNoAnswer = "no_answer" // no endpoint was reachable, or all connections broke before the response
	causeFull     = "full"      // the engine has no capacity
	causeEngine   = "engine"    // the engine answered with status 500 or above
	causeInside   = "in_answer" // the engine reported an error within its response
)

var userCauses = [...]string{causeRefused, causeNoAnswer, causeFull, causeEngine, causeInside}

var classes = [numClasses]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// End is the end of a placed request.
type End struct {
	Endpoint *endpoint.Endpoint // that served it last
	Model    string             // as sent to the engine
	Status   int                // 0: unknown
	Complete bool               // the response ended normally
	Broken   bool               // the engine reported an error within its response
	// Cause is the evidence against the endpoint; None and Void mean none.
	Cause health.Cause
	First time.Duration // time to the first token; 0: unknown
	Whole time.Duration // time to the end; 0: unknown
	// PromptTokens and CachedTokens are the engine's counts; 0 if it reported no cached tokens.
	PromptTokens, CachedTokens int
}

// Counter counts how requests ended, for dashboards and alerts. Errors seen by users are counted
// separately from endpoint failures: if one endpoint fails a request and the next one serves it,
// the user sees no error. A response that breaks in the middle may be caused by the client and
// counts as neither.
//
// Labels are bounded. A model has its own label if some endpoint is known to serve it, up to a
// limit; all others are "other". An endpoint's series exist while it is in the pool, a model's
// while it is served. A Counter is safe for concurrent use.
type Counter struct {
	pool *endpoint.Pool

	mu    sync.Mutex // guards the fields below and the content of users
	rows  map[block.EndpointID]*endpointCounts
	users map[string]*userCounts
}

// endpointCounts holds one endpoint's counts.
type endpointCounts struct {
	mu      sync.Mutex
	address string
	models  []modelCounts
	first   histogram
	whole   histogram
	prompt  uint64 // tokens, where the engine reported cached ones
	cached  uint64
}

type modelCounts struct {
	name    string
	classes [numClasses]uint64
}

// userCounts holds the counts of one model's users.
type userCounts struct {
	requests   uint64
	errors     [len(userCauses)]uint64
	unfinished uint64
	prompt     uint64 // tokens, where the engine reported cached ones
	cached     uint64
	first      FirstTokens
	firstSum   float64 // seconds
}

// New returns a counter for the pool's endpoints, registered with reg unless that is nil.
func New(pool *endpoint.Pool, reg prometheus.Registerer) (*Counter, error) {
	t := &Counter{pool: pool, rows: map[block.EndpointID]*endpointCounts{}, users: map[string]*userCounts{}}
	pool.Subscribe(t.changed)
	if reg == nil {
		return t, nil
	}
	return t, reg.Register(t)
}

// changed drops the counts of endpoints that will not return.
func (t *Counter) changed(c endpoint.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ep := range c.Dropped {
		delete(t.rows, ep.ID)
	}
}

// Ended counts a placed request.
func (t *Counter) Ended(e *End) {
	name := t.label(e.Model)
	if r := t.row(e.Endpoint); r != nil {
		r.ended(t.pool.Snapshot(), name, e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.user(name)
	u.requests++
	u.prompt += uint64(max(e.PromptTokens, 0))
	u.cached += uint64(max(e.CachedTokens, 0))
	if e.Status/firstStatus == 2 && e.First > 0 {
		u.first.observe(e.First)
		u.firstSum += e.First.Seconds()
	}
	switch cause := e.users(); {
	case cause != "":
		u.errors[slices.Index(userCauses[:], cause)]++
	case !e.Complete:
		u.unfinished++
	}
}

// users returns the error that the user saw, or "".
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

// Refused counts a request that was not placed. Client errors and cancellations do not count.
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

// Totals are the requests of users since the start.
type Totals struct {
	Requests   uint64 `json:"requests"`   // placed or not
	Errors     uint64 `json:"errors"`     // failed without a client error
	Unfinished uint64 `json:"unfinished"` // ended early or never started
}

// Totals returns the sums over all models.
func (t *Counter) Totals() (sum Totals) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.users {
		sum.Requests += u.requests
		sum.Unfinished += u.unfinished
		for _, n := range u.errors {
			sum.Errors += n
		}
	}
	return sum
}

// EndpointTotals are the requests that ended at an endpoint since it joined the pool.
type EndpointTotals struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"` // answered with status 500 or above
	// PromptTokens and CachedTokens are sums over answers whose engine reported cached tokens.
	PromptTokens uint64 `json:"prompt_tokens"`
	CachedTokens uint64 `json:"cached_tokens"`
}

// Endpoint returns the sums of an endpoint.
func (t *Counter) Endpoint(ep *endpoint.Endpoint) (sum EndpointTotals) {
	t.mu.Lock()
	r := t.rows[ep.ID]
	t.mu.Unlock()
	if r == nil || r.address != ep.Address {
		return sum
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.models {
		for class, n := range r.models[i].classes {
			if sum.Requests += n; class == numClasses-1 {
				sum.Errors += n
			}
		}
	}
	sum.PromptTokens, sum.CachedTokens = r.prompt, r.cached
	return sum
}

// row returns the counts of an endpoint that is, or recently was, in the pool; otherwise nil.
func (t *Counter) row(ep *endpoint.Endpoint) *endpointCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[ep.ID]
	if r == nil && t.pool.Snapshot().Lookup(ep.Address) != nil {
		r = &endpointCounts{address: ep.Address, first: histogram{bounds: firstBounds}, whole: histogram{bounds: wholeBounds}}
		t.rows[ep.ID] = r
	}
	if r == nil || r.address != ep.Address {
		return nil
	}
	return r
}

func (r *endpointCounts) ended(s *endpoint.Snapshot, model string, e *End) {
	class := classNone
	if e.Status >= firstStatus {
		class = min(e.Status/firstStatus, numClasses-1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models[r.model(s, model)].classes[class]++
	r.prompt += uint64(max(e.PromptTokens, 0))
	r.cached += uint64(max(e.CachedTokens, 0))
	if class == 2 && e.First > 0 {
		r.first.observe(e.First)
	}
	if class == 2 && e.Complete && e.Whole > 0 {
		r.whole.observe(e.Whole)
	}
}

// model returns the index of a model, or of "other" if the limit is reached.
func (r *endpointCounts) model(s *endpoint.Snapshot, name string) int {
	at := func(name string) int {
		return slices.IndexFunc(r.models, func(m modelCounts) bool { return m.name == name })
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
		r.models = append(r.models, modelCounts{name: name})
		i = len(r.models) - 1
	}
	return i
}

// dropUnserved drops models that are no longer served. The caller holds mu.
func (r *endpointCounts) dropUnserved(s *endpoint.Snapshot) {
	r.models = slices.DeleteFunc(r.models, func(m modelCounts) bool { return m.name != otherModels && len(s.Serving(m.name)) == 0 })
}

// label returns the label of a model: its name if some endpoint is known to serve it.
func (t *Counter) label(model string) string {
	if len(t.pool.Snapshot().Serving(model)) == 0 {
		return otherModels
	}
	return model
}

// user returns the counts of a model's users. The caller holds mu.
func (t *Counter) user(model string) *userCounts {
	u := t.users[model]
	if u == nil && len(t.users) >= maxModels {
		t.dropUnserved()
		if len(t.users) >= maxModels {
			model = otherModels
			u = t.users[model]
		}
	}
	if u == nil {
		u = &userCounts{}
		t.users[model] = u
	}
	return u
}

// dropUnserved drops models that are no longer served. The caller holds mu.
func (t *Counter) dropUnserved() {
	s := t.pool.Snapshot()
	for name := range t.users {
		if name != otherModels && len(s.Serving(name)) == 0 {
			delete(t.users, name)
		}
	}
}
