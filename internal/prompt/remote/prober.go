package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// ProberOptions configures a Prober. Endpoints and Models are required.
type ProberOptions struct {
	Name      string // of this replica: replicas start with different engines
	Endpoints func() []*endpoint.Endpoint
	Models    *prompt.Models
	// Profile returns the rendering profile of an endpoint's engine; nil: the newest vLLM.
	Profile func(*endpoint.Endpoint) prompt.Profile
	// Found receives an engine's findings. It must not call methods of the Prober.
	Found func(ep *endpoint.Endpoint, model string, found []Finding)

	Client     *http.Client  // nil: one that follows no redirect and uses no proxy
	Pace       time.Duration // between engines; default 500 ms
	Timeout    time.Duration // of one chat; default 2 s
	Again      time.Duration // interval after a difference; default 1 min
	Anew       time.Duration // interval after a match or no result; default 10 min
	Now        func() time.Time
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Prober compares the engines' renderings of fixed chats with the local ones, one engine and model
// at a time. The first engine of each kind and model takes precedence. A difference is checked
// again soon, to notice a corrected template. A match is checked less often, because an engine may
// restart with another template unnoticed, or on [Prober.Recheck].
type Prober struct {
	o      ProberOptions
	asked  *prometheus.CounterVec
	mu     sync.Mutex
	looked map[lookKey]*look
	left   int // number of calls to Reset
}

type lookKey struct {
	id    block.EndpointID
	model string
}

// look is the state of one model at one engine.
type look struct {
	of      *prompt.Model // the version that was compared
	found   []Finding
	at      time.Time // time of the last query
	next    time.Time // time of the next query
	failed  int       // attempts in a row
	differs bool
}

// Delays after failed attempts.
const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// NewProber returns a prober. It sends no queries until Run is called.
func NewProber(o ProberOptions) (*Prober, error) {
	if o.Client == nil {
		o.Client = NewClient()
	}
	o.Pace, o.Timeout, o.Again = cmp.Or(o.Pace, 500*time.Millisecond), cmp.Or(o.Timeout, 2*time.Second), cmp.Or(o.Again, time.Minute)
	o.Anew = cmp.Or(o.Anew, 10*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	p := &Prober{o: o, looked: map[lookKey]*look{}, asked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_rendering_probes_total",
		Help: "Fixed chats that engines were asked to render, by what came of it: equal, differs, skipped (the engine does not tell, or refuses it) or failed.",
	}, []string{"result"})}
	for _, result := range []string{"equal", "differs", "skipped", "failed"} {
		p.asked.WithLabelValues(result)
	}
	if o.Registerer == nil {
		return p, nil
	}
	return p, o.Registerer.Register(p.asked)
}

// Run queries engines until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		p.Step(ctx)
		tick.Reset(ticks.Until(p.o.Pace))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Findings returns the findings for an endpoint's engine, or nil if it has not been queried. A nil
// Prober always returns nil.
func (p *Prober) Findings(id block.EndpointID, model string) []Finding {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.looked[lookKey{id, model}]; l != nil {
		return l.found
	}
	return nil
}

// Reset discards the findings of endpoints whose engines were replaced, so that they are queried
// again.
func (p *Prober) Reset(eps []*endpoint.Endpoint) {
	if p == nil || len(eps) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left++
	for key := range p.looked {
		if slices.ContainsFunc(eps, func(ep *endpoint.Endpoint) bool { return ep.ID == key.id }) {
			delete(p.looked, key)
		}
	}
}

// Recheck queries an endpoint's engine again soon, because its cached-token counts contradict its
// prompts. It has no effect if the engine was queried recently.
func (p *Prober) Recheck(ep *endpoint.Endpoint) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, l := range p.looked {
		if soon := l.at.Add(p.o.Again); key.id == ep.ID && l.failed == 0 && soon.Before(l.next) {
			l.next = soon
		}
	}
}

// job is a model to check at an engine, with a name that the engine serves it under.
type job struct {
	ep    *endpoint.Endpoint
	model *prompt.Model
	name  string
	left  int // value of Prober.left when the job started
}

// Step queries the engine that is due first, if any.
func (p *Prober) Step(ctx context.Context) {
	j, ok := p.due()
	if !ok {
		return
	}
	e := &Engine{URL: "http://" + j.ep.Address, Kind: kindOf(j.ep), Busy: j.ep.Gauges().Waiting > 0, Client: p.o.Client}
	if p.o.Profile != nil {
		e.As = p.o.Profile(j.ep)
	}
	var found []Finding
	for _, c := range Chats {
		one, err := p.compare(ctx, e, &j, c)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.failed(&j, err)
			return
		}
		found = append(found, one)
	}
	p.keep(&j, found)
}

func (p *Prober) compare(ctx context.Context, e *Engine, j *job, c Chat) (Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	f, err := Compare(ctx, e, j.model, j.name, c)
	result := "differs"
	switch {
	case errors.Is(err, ErrBusy):
		return f, err
	case err != nil:
		result = "failed"
	case !f.Complete():
		result = "skipped"
	case f.Equal:
		result = "equal"
	}
	p.asked.WithLabelValues(result).Inc()
	return f, err
}

func kindOf(ep *endpoint.Endpoint) endpoint.EngineType {
	if ep.Engine != endpoint.EngineUnknown {
		return ep.Engine
	}
	return ep.Gauges().Engine
}

// due returns the next job. Engines not queried yet come first, starting with kinds and models that
// have no findings; then engines whose interval has elapsed.
func (p *Prober) due() (best job, ok bool) {
	now := p.o.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	type group struct {
		kind  endpoint.EngineType
		model string
	}
	known, jobs := map[group]bool{}, []job{}
	for _, ep := range p.o.Endpoints() {
		if ep.Down() || ep.Cluster != "" {
			continue
		}
		for name, model := range served(ep, p.o.Models) {
			l := p.looked[lookKey{ep.ID, model.Name()}]
			if l != nil && l.of == model && len(l.found) > 0 {
				known[group{kindOf(ep), model.Name()}] = true
			}
			if l == nil || l.of != model || !now.Before(l.next) {
				jobs = append(jobs, job{ep, model, name, p.left})
			}
		}
	}
	if len(jobs) == 0 {
		return job{}, false
	}
	rank := func(j job) (out int) {
		if l := p.looked[lookKey{j.ep.ID, j.model.Name()}]; l != nil && l.of == j.model {
			out += 2
		}
		if known[group{kindOf(j.ep), j.model.Name()}] {
			out++
		}
		return out
	}
	return slices.MinFunc(jobs, func(a, b job) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(p.turn(a.ep), p.turn(b.ep)), cmp.Compare(a.name, b.name))
	}), true
}

// turn orders engines, differently for each replica.
func (p *Prober) turn(ep *endpoint.Endpoint) uint64 {
	return xxhash.Sum64String(p.o.Name + "\x00" + ep.Address)
}

// served returns the models with a local template that an endpoint serves, each with one of its
// names.
func served(ep *endpoint.Endpoint, models *prompt.Models) map[string]*prompt.Model {
	out, seen := map[string]*prompt.Model{}, map[*prompt.Model]bool{}
	list, _ := ep.EngineModels()
	for _, name := range slices.Sorted(maps.Keys(models.Names())) {
		m, adapter, _ := models.Lookup(name)
		if m == nil || adapter != "" || seen[m] || !m.HasTemplate() {
			continue
		}
		if ep.Listed(name) || list == nil && len(ep.Models) == 0 && name == m.Name() {
			out[name], seen[m] = m, true
		}
	}
	return out
}

// failed schedules a retry with exponential backoff.
func (p *Prober) failed(j *job, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.left != p.left {
		return
	}
	l := p.lookOf(j)
	l.next = p.o.Now().Add(min(firstRetry<<min(l.failed, 8), lastRetry))
	l.failed++
	p.o.Log.Debug("engine did not render a chat", "endpoint", j.ep.Address, "model", j.model.Name(), "error", err)
}

func (p *Prober) lookOf(j *job) *look {
	key := lookKey{j.ep.ID, j.model.Name()}
	l := p.looked[key]
	if l == nil || l.of != j.model {
		l = &look{of: j.model}
		p.looked[key] = l
	}
	return l
}

// keep stores the findings and logs a change. Findings from before a Reset are discarded, and the
// engine is queried again.
func (p *Prober) keep(j *job, found []Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.left != p.left {
		return
	}
	l := p.lookOf(j)
	was := l.differs
	l.found, l.failed, l.at, l.differs = found, 0, p.o.Now(), false
	l.next = l.at.Add(p.o.Anew)
	var first *Finding
	for i := range found {
		if f := &found[i]; f.Complete() && !f.Equal && first == nil {
			first, l.differs = f, true
			l.next = l.at.Add(p.o.Again)
		}
	}
	log := p.o.Log.With("endpoint", j.ep.Address, "model", j.model.Name())
	switch {
	case l.differs && !was:
		log.Warn("engine renders chats differently from this replica", "difference", first.String())
	case was && !l.differs:
		log.Info("engine renders chats like this replica")
	}
	if p.o.Found != nil {
		p.o.Found(j.ep, j.model.Name(), found)
	}
}
