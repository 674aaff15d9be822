package monitor

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

const defaultFaultRuns = 3

var faultRuns = flag.Int("fault.runs", defaultFaultRuns, "runs of each row of TestFaults, and three times those of TestPartialFaults")

// The pool of TestFaults: the pool of `make demo-faults`, in virtual time.
const (
	faultEngines = 6
	faultSlots   = 3
	faultEvery   = time.Second / 24 // between two requests: 60% of the slots
	faultStep    = 10 * time.Millisecond
	faultPrefill = 50 * time.Millisecond
	faultWarm    = 15 * time.Second
	faultLasts   = 12 * time.Second
	faultGrace   = 3 * time.Second // after which clients must not notice
	faultBack    = 15 * time.Second
	faultPatient = 10 * time.Second // clients
)

// faultEngine is an engine with some slots and a configurable fault.
type faultEngine struct {
	slots chan struct{}

	mu        sync.Mutex
	kind      string
	slow      int
	noisy     bool // fails one request in a hundred, like a normal engine
	rng       *rand.Rand
	generated float64
	changed   chan struct{} // closed when kind changes
	answered  time.Time     // first good answer to a client since kind last changed
}

func (e *faultEngine) set(kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kind, e.slow, e.answered = kind, 1, time.Time{}
	switch kind {
	case "30 times slower":
		e.slow = 30
	case "5 times slower":
		e.slow = 5
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *faultEngine) answers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answered.IsZero() {
		e.answered = time.Now()
	}
}

func (e *faultEngine) now() (kind string, slow int, changed chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kind, e.slow, e.changed
}

func hangs(kind string) bool { return strings.HasPrefix(kind, "hangs") }

// work waits for d. If the engine hangs during that time, it waits until the engine recovers or ctx
// ends.
func (e *faultEngine) work(ctx context.Context, d time.Duration) bool {
	for {
		kind, slow, changed := e.now()
		switch {
		case hangs(kind):
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return false
			}
		case ctx.Err() != nil:
			return false
		}
		time.Sleep(d * time.Duration(slow))
		return true
	}
}

// answer is an engine's response: its status, 0 for a broken connection, and whether it is
// complete.
type answer struct {
	status  int
	whole   bool
	invalid bool // without content
	tokens  int
}

func (e *faultEngine) infer(ctx context.Context, tokens int, stream bool, moved func(first bool)) answer {
	e.mu.Lock()
	kind, fails := e.kind, e.kind == "500 at once" || e.kind == "500 for a third" && e.rng.IntN(3) == 0 || tokens > probeTokens && e.noisy && e.rng.IntN(100) == 0
	e.mu.Unlock()
	switch {
	case fails:
		time.Sleep(2 * time.Millisecond)
		return answer{status: 500}
	case strings.HasPrefix(kind, "401"):
		time.Sleep(2 * time.Millisecond)
		return answer{status: 401}
	case kind == "aborts":
		time.Sleep(2 * time.Millisecond)
		return answer{status: 200, invalid: true}
	case kind == "a tenth of the text":
		tokens = max(tokens/10, 1)
	case kind == "halts whole answers" && !stream:
		moved(true) // the headers, and half of the body
		<-ctx.Done()
		return answer{}
	case kind == "resets connections":
		time.Sleep(2 * time.Millisecond)
		return answer{}
	case kind == "a third hangs" && tokens > probeTokens && e.third(): // it keeps no slot: other requests and probes continue
		<-ctx.Done()
		return answer{}
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	case <-ctx.Done():
		return answer{}
	}
	if !e.work(ctx, faultPrefill) {
		return answer{}
	}
	for i := range tokens {
		if !e.work(ctx, faultStep) {
			return answer{}
		}
		e.mu.Lock()
		e.generated++
		e.mu.Unlock()
		moved(i == 0)
		if kind, _, _ := e.now(); stream && kind == "resets half-way" && i == 5 {
			return answer{status: 200}
		}
	}
	return answer{status: 200, whole: true, tokens: tokens}
}

// third returns true once in three times.
func (e *faultEngine) third() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rng.IntN(3) == 0
}

// faultReplica is one replica of TestFaults.
type faultReplica struct {
	pool    *endpoint.Pool
	monitor *Monitor
	picker  *picker.Scheduler
}

type faultWorld struct {
	t        *testing.T
	rng      *rand.Rand
	engines  map[string]*faultEngine
	replicas []*faultReplica
	cut      bool          // they do not share
	hasty    bool          // clients leave before health would
	mixed    bool          // tenants with short and repeated answers, and engines of different speed
	noise    bool          // engines fail one request in a hundred, and one client in twelve leaves
	every    time.Duration // between two requests
	lasts    time.Duration // of the fault
	part     *partialFault // of the engine with the fault; nil: kind is its fault
	varied   bool          // requests have different APIs, sizes, features and models

	asking sync.WaitGroup
	probes atomic.Int64
	mu     sync.Mutex
	sent   []*faultRequest
}

type faultRequest struct {
	at   time.Time
	took time.Duration
	ok   bool
}

// leastBusy prefers the endpoint with the fewest requests in all visible load trackers.
type leastBusy struct {
	w *faultWorld
	r int
}

func (l leastBusy) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	best, least := int32(0), 1e9
	for i := range c.Len() {
		load := c.Float64() / 2
		for k, r := range l.w.replicas {
			if k == l.r || !l.w.cut {
				load += float64(r.pool.LoadTracker().Load(r.pool.Snapshot().Lookup(c.At(i).Address), c.Now).Requests)
			}
		}
		if load < least {
			best, least = int32(i), load
		}
	}
	plan.Order = append(plan.Order, best)
	return nil
}

func openFaultWorld(t *testing.T, replicas int, cut bool, seed uint64) *faultWorld {
	return openFaultWorldOf(t, replicas, cut, seed, faultEngines, faultSlots)
}

func openFaultWorldOf(t *testing.T, replicas int, cut bool, seed uint64, engines, slots int) *faultWorld {
	w := &faultWorld{t: t, rng: rand.New(rand.NewPCG(seed, 3)), engines: map[string]*faultEngine{}, cut: cut, every: faultEvery, lasts: faultLasts}
	var specs []endpoint.Spec
	for i := range engines {
		s := endpoint.Spec{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(8000+i))}
		specs = append(specs, s)
		w.engines[s.Addr.String()] = &faultEngine{slots: make(chan struct{}, slots), slow: 1, rng: rand.New(rand.NewPCG(seed, uint64(i))), changed: make(chan struct{})}
	}
	for i := range replicas {
		r := &faultReplica{pool: endpoint.NewPool(endpoint.PoolOptions{})}
		name := fmt.Sprint(i)
		var err error
		r.monitor, err = Open(Options{
			Pool: r.pool, Probe: w.probe,
			Rank: func(address string) int {
				if cut {
					return 0
				}
				return (int(address[len(address)-1]) + i) % replicas
			},
			Publish: func(address string, value []byte) error {
				for k, o := range w.replicas {
					if k != i && !cut {
						_ = o.monitor.Merge(name, 1, address, value)
					}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.picker, err = picker.New(picker.Options{Pool: r.pool, Rules: &picker.Rules{Handler: leastBusy{w, i}}, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		w.replicas = append(w.replicas, r)
	}
	for _, r := range w.replicas {
		r.pool.Set(specs)
	}
	return w
}

func (w *faultWorld) probe(ctx context.Context, ep *endpoint.Endpoint) Result {
	w.probes.Add(1)
	if e := w.engines[ep.Address]; w.part != nil {
		if kind, _, _ := e.now(); kind == partOfRequests && !w.part.probesPass && w.part.affects(probeRequest(ep)) {
			if w.part.status == 0 {
				time.Sleep(probeTimeout)
				return Hung
			}
			return Denied
		}
	}
	limit := Limit(ep)
	ctx, cancel := context.WithTimeout(ctx, max(limit, probeTimeout))
	defer cancel()
	begun := time.Now()
	ended := make(chan answer, 1)
	w.asking.Go(func() { ended <- w.engines[ep.Address].infer(ctx, probeTokens, true, func(bool) {}) })
	select {
	case a := <-ended:
		kind, _, _ := w.engines[ep.Address].now()
		switch {
		case kind == "401, probes have no result":
			return Alive
		case ctx.Err() != nil:
			return Hung
		case !a.whole:
			return Denied
		case time.Since(begun) > limit:
			return Missed
		case a.tokens < probeTokens/briefly: // a peer answers more
			return Denied
		}
		return Passed
	case <-ctx.Done():
		return Hung
	}
}

// pages reads the metrics pages of the engines for all replicas, until stop is closed.
func (w *faultWorld) pages(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(tickEvery):
		}
		for address, e := range w.engines {
			e.mu.Lock()
			page, dead := &scrape.Page{Generated: e.generated}, e.kind == "hangs, HTTP is dead"
			page.Running = len(e.slots)
			e.mu.Unlock()
			for _, r := range w.replicas {
				if !dead {
					r.pool.Snapshot().Lookup(address).SetGauges(endpoint.Gauges{At: time.Now(), Values: gauge.Values{Running: page.Running}})
					r.monitor.Read(r.pool.Snapshot().Lookup(address), scrape.Reading{At: time.Now(), Answered: true, Page: page})
				}
			}
		}
	}
}

// ask sends one request through a replica, as a proxy without retries does.
func (w *faultWorld) ask(r *faultReplica, n, tokens int) {
	stream := n%2 == 0 && !w.hasty
	q, user := &faultRequest{at: time.Now()}, ""
	if n%4 < 2 {
		user = []string{"big tenant", "other tenant"}[n%2]
	}
	most, repeats := 2*tokens, false
	if w.mixed {
		switch n % 5 {
		case 0: // classification
			user, tokens, most = "classifier", 1, 1
		case 1: // without a limit, mostly short
			user, most = "", 0
			if n%3 > 0 {
				tokens = 2
			}
		case 2: // asks for repeated characters
			user, repeats = "repeater", true
		case 3: // tool calls
			user, tokens = "agent", 3+n%40
		}
	}
	w.mu.Lock()
	w.sent = append(w.sent, q)
	w.mu.Unlock()
	asked := &request.Request{
		ID: fmt.Sprint(n), Path: "/v1/completions", Kind: request.KindCompletions, Model: "m", Target: "m", InputTokens: 100, Stream: stream,
		User: user, Session: fmt.Sprint(n), MaxTokens: most,
	}
	if w.varied {
		w.vary(asked)
	}
	d, err := r.picker.Choose(context.Background(), asked)
	if err != nil {
		w.t.Error(err)
		return
	}
	patient := faultPatient
	if w.hasty {
		patient = 700 * time.Millisecond
	}
	if w.noise && stream && n%12 == 0 {
		patient = 250 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	at, seen := d.Endpoints[0], d.WantBody
	events := make(chan bool, 1000)
	ended := make(chan answer, 1)
	w.asking.Go(func() {
		if kind, _, _ := w.engines[at].now(); kind == "404 to a tenant" && user == "big tenant" {
			ended <- answer{status: 404}
			return
		}
		if kind, _, _ := w.engines[at].now(); kind == partOfRequests && w.part.affects(asked) {
			ended <- w.part.answer(ctx)
			return
		}
		ended <- w.engines[at].infer(ctx, tokens, stream, func(first bool) { events <- first })
	})
	var a answer
	begun := 0
	for open := true; open; {
		select {
		case first := <-events:
			switch {
			case stream && first:
				begun = 200
				d.Observe(request.Event{Kind: request.EventHeaders, At: time.Now(), Status: 200, Served: at})
				d.Observe(request.Event{Kind: request.EventFirstToken, At: time.Now(), Tokens: 1})
			case first && w.halting(at):
				begun = 200
				d.Observe(request.Event{Kind: request.EventHeaders, At: time.Now(), Status: 200, Served: at})
			case stream && seen:
				d.Observe(request.Event{Kind: request.EventTokens, At: time.Now(), Tokens: 1})
			}
		case a = <-ended:
			open = false
		case <-ctx.Done():
			open = false
		}
	}
	q.took, q.ok = time.Since(q.at), a.whole && a.tokens == tokens
	if q.ok {
		w.engines[at].answers()
	}
	o := request.Outcome{At: time.Now(), Status: a.status, Complete: a.whole, Served: at}
	switch {
	case ctx.Err() != nil: // the client leaves
		o.Status = begun
	case a.status == 0:
		d.Observe(request.Event{Kind: request.EventHeaders, At: o.At, Status: 503, Local: true})
		o.Status, o.Complete = 503, true
	case a.status >= 300 && a.status < 500, a.invalid:
		d.Observe(request.Event{Kind: request.EventHeaders, At: o.At, Status: a.status, Served: at})
		o.Complete, o.Invalid = true, a.invalid && seen
	case a.status >= 500, !stream:
		d.Observe(request.Event{Kind: request.EventHeaders, At: o.At, Status: a.status, Served: at})
		o.Complete = true
	case !seen: // a proxy that does not report the end
		o.Unseen, o.Complete = true, true
	}
	o.Invalid = o.Invalid || repeats && seen && o.Complete && o.Status == 200
	if seen && a.whole {
		o.Usage = request.Usage{Seen: true, OutputTokens: a.tokens, PromptTokens: 100}
		o.Closed = stream
	}
	d.Done(o)
}

// faultRow is the result of the runs of one fault.
type faultRow struct {
	first, firstFailed, rest, restFailed int
	times, calm                          []time.Duration // of complete answers
	found, answered, trusted             []time.Duration
	missed, others                       int // runs in which it was not found; times that a healthy endpoint was out
	probes                               int64
}

// halting reports whether the engine stops in the middle of unstreamed answers.
func (w *faultWorld) halting(address string) bool {
	kind, _, _ := w.engines[address].now()
	return kind == "halts whole answers"
}

// run plays one fault.
func (w *faultWorld) run(kind string, row *faultRow) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { w.pages(stop) })
	sick := fmt.Sprintf("10.0.0.1:%d", 8000+w.rng.IntN(len(w.engines)))
	e := w.engines[sick]
	if w.noise {
		sick = "" // none
	}
	for _, e := range w.engines {
		e.noisy = w.noise
	}
	begun := time.Now()
	began, ends := begun.Add(faultWarm), begun.Add(faultWarm+w.lasts)
	state, found, trusted := 0, time.Duration(0), time.Duration(0)
	for n := 0; time.Since(begun) < faultWarm+w.lasts+faultBack; n++ {
		tokens := 25 + w.rng.IntN(30)
		wg.Go(func() { w.ask(w.replicas[n%len(w.replicas)], n/len(w.replicas), tokens) })
		time.Sleep(time.Duration((.5 + w.rng.Float64()) * float64(w.every)))
		switch now := time.Now(); {
		case state == 0 && !now.Before(began):
			if state = 1; kind != "" {
				e.set(kind)
			}
		case state == 1 && !now.Before(ends):
			if state = 2; kind != "" {
				e.set("")
			}
		}
		out, well := w.states(sick, row)
		if state == 1 && found == 0 && out == len(w.replicas) {
			found = time.Since(began)
		}
		if state == 2 && trusted == 0 && well {
			trusted = time.Since(ends)
		}
	}
	close(stop)
	wg.Wait()
	if found == 0 {
		row.missed++
	} else {
		row.found = append(row.found, found)
	}
	row.trusted = append(row.trusted, trusted)
	row.answered = append(row.answered, e.answered.Sub(ends))
	for _, q := range w.sent {
		failed := 0
		if !q.ok {
			failed = 1
		}
		switch at := q.at.Sub(began); {
		case at < -faultWarm/2:
		case at < 0:
			row.calm = append(row.calm, q.took)
		case at < faultGrace:
			row.first++
			row.firstFailed += failed
		case at < w.lasts:
			row.rest++
			row.restFailed += failed
			row.times = append(row.times, q.took)
		}
	}
	for _, r := range w.replicas {
		r.monitor.Close()
	}
	w.asking.Wait()
	row.probes += w.probes.Load()
}

// states returns how many replicas exclude an endpoint, and whether every replica considers every
// endpoint healthy.
func (w *faultWorld) states(sick string, row *faultRow) (out int, well bool) {
	well = true
	for _, r := range w.replicas {
		for _, ep := range r.pool.Snapshot().Endpoints {
			v := r.pool.Health().View(int(ep.ID))
			well = well && v.State == health.Healthy
			switch {
			case ep.Address == sick && v.State != health.Healthy && v.State != health.Returning:
				out++
			case ep.Address != sick && (v.State == health.Out || v.State == health.Probing):
				row.others++
			}
		}
	}
	return out, well
}

func p90(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*9/10]
}

func mean(times []time.Duration) (m time.Duration) {
	for _, t := range times {
		m += t / time.Duration(len(times))
	}
	return m.Round(10 * time.Millisecond)
}

// ways are the variants of the replicas in TestFaults.
var ways = []struct {
	name     string
	replicas int
	cut      bool
}{{"three", 3, false}, {"one", 1, false}, {"three that do not share", 3, true}}

// faultRowOf plays a fault several times.
func faultRowOf(t *testing.T, replicas int, cut bool, kind string) *faultRow {
	row := &faultRow{}
	for seed := range uint64(*faultRuns) {
		synctest.Test(t, func(t *testing.T) {
			w := openFaultWorld(t, replicas, cut, seed)
			w.noise = kind == ""
			w.run(kind, row)
		})
	}
	return row
}

// notRaced skips a test that takes minutes under the race detector. The other tests of this file run
// the same goroutines.
func notRaced(t *testing.T) {
	t.Helper()
	if testkit.Raced {
		t.Skip("its many runs in virtual time find no more races than one")
	}
}

// TestFaults plays the faults of `make demo-faults` in virtual time, without retries. It limits the
// failures of clients from the third second on, for three replicas, for one, and for three that do
// not share. The limits cover several runs; the limit of 1% holds for many.
func TestFaults(t *testing.T) {
	notRaced(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, kind := range []string{"hangs, pages answer", "hangs, HTTP is dead", "500 at once", "500 for a third", "a third hangs", "30 times slower", "5 times slower", "resets connections", "resets half-way"} {
				row := faultRowOf(t, way.replicas, way.cut, kind)
				failed, slower := float64(row.restFailed)/float64(row.rest), float64(p90(row.times))/float64(p90(row.calm))
				t.Logf("%-20s found %v (not in %d runs), failed %d/%d, then %d/%d (%.1f%%), p90 %.2f, answers %v, trusted %v", kind, mean(row.found), row.missed,
					row.firstFailed, row.first, row.restFailed, row.rest, 100*failed, slower, mean(row.answered), mean(row.trusted))
				if failed > .02 || slower > 1.2 || mean(row.answered) > 5*time.Second {
					t.Errorf("%s: more is lost than may be", kind)
				}
				if row.others > 0 {
					t.Errorf("%s: an endpoint is out that is well", kind)
				}
			}
		})
	}
}

// TestFaultsThatTheProtocolAllows: an engine whose answers differ from its peers' is found, with
// any status.
func TestFaultsThatTheProtocolAllows(t *testing.T) {
	notRaced(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, kind := range []string{"401 at once", "401, probes have no result", "aborts", "halts whole answers", "a tenth of the text", "404 to a tenant"} {
				row := faultRowOf(t, way.replicas, way.cut, kind)
				failed := float64(row.restFailed) / float64(row.rest)
				t.Logf("%-26s found %v (not in %d runs), failed %d/%d, then %d/%d (%.1f%%), answers %v, trusted %v", kind, mean(row.found), row.missed,
					row.firstFailed, row.first, row.restFailed, row.rest, 100*failed, mean(row.answered), mean(row.trusted))
				limit := .02
				if strings.Contains(kind, "no result") { // a request tries the endpoint every ten seconds
					limit = .05
				}
				if failed > limit || row.missed > 0 && kind != "halts whole answers" && kind != "404 to a tenant" { // for these, being suspect is sufficient
					t.Errorf("%s: more is lost than may be", kind)
				}
				if row.others > 0 {
					t.Errorf("%s: an endpoint is out that is well", kind)
				}
			}
		})
	}
}

// TestNoise: if engines fail one request in a hundred, and clients leave, no endpoint is ejected,
// and few are probed.
func TestNoise(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			row := faultRowOf(t, way.replicas, way.cut, "")
			t.Logf("%d of %d requests failed; %d probes", row.firstFailed+row.restFailed, row.first+row.rest, row.probes)
			if row.others > 0 {
				t.Errorf("an endpoint is out, and all are well")
			}
			if row.firstFailed+row.restFailed == 0 || row.probes == 0 {
				t.Error("this is no noise")
			}
		})
	}
}

// TestMixedTenants: no endpoint is out where tenants have short answers, ask for repeated text, and
// engines differ in speed.
func TestMixedTenants(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			row := &faultRow{}
			for seed := range uint64(*faultRuns) {
				synctest.Test(t, func(t *testing.T) {
					w := openFaultWorld(t, way.replicas, way.cut, seed)
					w.mixed, w.noise = true, true
					i := 0
					for _, e := range w.engines {
						e.slow = 1 + i%3
						i++
					}
					w.run("", row)
				})
			}
			t.Logf("%d of %d requests failed; %d probes", row.firstFailed+row.restFailed, row.first+row.rest, row.probes)
			if row.others > 0 {
				t.Errorf("an endpoint is out, and all are well")
			}
		})
	}
}

// TestHastyClients: a hanging engine is found although every client leaves before its answer is
// late, and no client streams.
func TestHastyClients(t *testing.T) {
	notRaced(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for _, kind := range []string{"hangs, pages answer", "hangs, HTTP is dead", "30 times slower"} {
				row := &faultRow{}
				for seed := range uint64(*faultRuns) {
					synctest.Test(t, func(t *testing.T) {
						w := openFaultWorld(t, way.replicas, way.cut, seed)
						w.hasty = true
						w.run(kind, row)
					})
				}
				t.Logf("%-20s found %v (not in %d runs), failed %d/%d, then %d/%d", kind, mean(row.found), row.missed, row.firstFailed, row.first, row.restFailed, row.rest)
				if row.missed > 0 || row.restFailed*50 > row.rest {
					t.Errorf("%s: more is lost than may be", kind)
				}
				if row.others > 0 {
					t.Errorf("%s: an endpoint is out that is well", kind)
				}
			}
		})
	}
}
