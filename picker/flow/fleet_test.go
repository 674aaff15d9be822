package flow

import (
	stdheap "container/heap"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

var (
	fleetSeeds = flag.Int("flow.seeds", 60, "seeds of TestFleetSeeds")
	fleetFirst = flag.Uint64("flow.first", 0, "the first of them")
)

// world simulates replicas in front of one pool in virtual time. Requests arrive at replicas and
// run in the engines for a random time, and gauges are delayed.
type world struct {
	rng    *rand.Rand
	now    int64
	events eventHeap
	serial int

	capacity int64
	mean     float64 // of a request, seconds
	sigma    float64 // of the log-normal distribution
	delay    int64   // of gauges
	loss     float64
	sick     bool // engines cannot be read
	stale    bool // engines are read every 500 ms and observed every 50 ms

	replicas []*replica
	running  int64 // permits that engines run, including requests of dead replicas
	most     int64
	byFlow   map[string]*tally

	waitingIdle float64 // permit-seconds free while requests waited
	waitingAll  float64 // permit-seconds while requests waited
	failures    []string
	evicted     int
}

type tally struct {
	running int64
	area    float64 // permit-seconds
	offered int
	served  int
	refused int
	lost    int // waiting at a replica that died
}

// replica is one Core with its connections.
type replica struct {
	name    string
	core    *Core
	alive   bool
	cut     bool
	queued  map[rules.Handle]string // flow by waiting handle
	flights map[rules.Handle]bool
	ends    map[rules.Handle]func() // of dispatched requests
	then    map[rules.Handle]func() // callbacks when requests are answered
	due     int64                   // next Advance
	life    int

	marks map[string]int64 // by origin, last received mark
	told  int              // number of gauges sent
	heard map[string]int   // by origin, last received number
}

type event struct {
	at  int64
	n   int
	run func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].n < h[j].n
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newWorld(seed uint64, replicas int, capacity int64, mean float64, o rules.Options) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), now: 1, capacity: capacity, mean: mean, sigma: .8,
		delay: 20 * ms, byFlow: map[string]*tally{},
	}
	for i := range replicas {
		w.replicas = append(w.replicas, &replica{name: fmt.Sprint("r", i+1)})
	}
	for _, r := range w.replicas {
		w.start(r, o)
	}
	return w
}

func (w *world) after(d int64, run func()) {
	w.serial++
	stdheap.Push(&w.events, event{w.now + d, w.serial, run})
}

func (w *world) flow(id string) *tally {
	if w.byFlow[id] == nil {
		w.byFlow[id] = &tally{}
	}
	return w.byFlow[id]
}

func (w *world) start(r *replica, o rules.Options) {
	r.name = fmt.Sprintf("%s'", r.name) // a restart is another member
	r.core, r.alive, r.queued, r.flights = New(o), true, map[rules.Handle]string{}, map[rules.Handle]bool{}
	r.ends, r.then = map[rules.Handle]func(){}, map[rules.Handle]func(){}
	r.marks = map[string]int64{}
	r.told, r.heard = 0, map[string]int{}
	r.life++
	life := r.life
	r.core.SetCapacity(w.now, rules.Capacity{Permits: w.capacity, Endpoints: 8})
	w.drain(r)
	var gauges, sample, witness func()
	var running, sampled int64 // engines' gauges and their time
	gauges = func() {
		if r.life != life || !r.alive {
			return
		}
		w.tell(r)
		w.after(20*ms, gauges)
	}
	sample = func() {
		if r.life != life || !r.alive {
			return
		}
		if !w.sick {
			running, sampled = w.running, w.now
		}
		if !w.stale {
			witness()
		}
		w.after(500*ms, sample)
	}
	witness = func() { // with stale, more often than engines are read
		if r.life != life || !r.alive {
			return
		}
		if sampled > 0 && !w.sick {
			r.core.ObserveRunning(w.now, sampled, running)
			w.drain(r)
		}
		if w.stale {
			w.after(50*ms, witness)
		}
	}
	w.after(w.rng.Int64N(20*ms), gauges)
	w.after(w.rng.Int64N(500*ms), sample)
	if w.stale {
		w.after(50*ms, witness)
	}
}

// tell sends r's gauges to the others.
func (w *world) tell(r *replica) {
	g, name := r.core.Gauges(nil), r.name
	r.told++
	number, mark := r.told, r.core.Mark(w.now)
	echoes := maps.Clone(r.marks)
	for _, p := range w.replicas {
		if p == r || p.cut != r.cut || w.rng.Float64() < w.loss {
			continue
		}
		w.after(w.delay/2+w.rng.Int64N(w.delay+1), func() {
			if p.alive && p.cut == r.cut && number > p.heard[name] {
				p.heard[name] = number // older gauges are ignored, as in the group
				p.core.ReceiveShares(w.now, name, g)
				if mark > 0 {
					p.marks[name] = mark
				}
				if echoes[p.name] > 0 {
					p.core.Echo(w.now, name, echoes[p.name])
				}
				w.drain(p)
			}
		})
	}
}

// offer makes a request arrive at r.
func (w *world) offer(r *replica, a rules.Request) { w.ask(r, a, nil) }

// ask is offer with a callback when the request is answered.
func (w *world) ask(r *replica, a rules.Request, then func()) {
	if !r.alive {
		return
	}
	w.flow(a.Flow).offered++
	h, out := r.core.Offer(w.now, a)
	if h != 0 && then != nil {
		r.then[h] = then
	}
	switch out {
	case rules.Dispatched:
		w.run(r, h, a.Flow, max(a.Permits, 1))
	case rules.Queued:
		r.queued[h] = a.Flow
	default:
		w.flow(a.Flow).refused++
	}
	w.drain(r)
}

// run simulates an engine that works on a request of r.
func (w *world) run(r *replica, h rules.Handle, id string, places int64) {
	if r.flights[h] {
		w.failures = append(w.failures, "a request was let go twice")
	}
	r.flights[h] = true
	w.running += places
	w.most = max(w.most, w.running)
	f, life := w.flow(id), r.life
	f.running += places
	f.served++
	took := w.mean * math.Exp(w.rng.NormFloat64()*w.sigma-w.sigma*w.sigma/2)
	over, then := false, r.then[h]
	delete(r.then, h)
	end := func() {
		if over {
			return
		}
		over = true
		w.running -= places
		f.running -= places
		if r.alive && r.life == life {
			delete(r.flights, h)
			delete(r.ends, h)
			r.core.Release(w.now, h, -1)
			w.drain(r)
		}
		if then != nil {
			then()
		}
	}
	r.ends[h] = end
	w.after(int64(took*1e9), end)
}

func (w *world) drain(r *replica) {
	for _, e := range r.core.Events(nil) {
		if e.Outcome == rules.Evicted {
			if end := r.ends[e.Handle]; end != nil {
				w.evicted++
				w.after(5*ms, end) // the client is notified, the engine stops
			} else {
				w.failures = append(w.failures, "a request was ended that is not in flight")
			}
			continue
		}
		id, ok := r.queued[e.Handle]
		if !ok {
			w.failures = append(w.failures, "an outcome of a request that does not wait")
		}
		delete(r.queued, e.Handle)
		if e.Outcome == rules.Dispatched {
			w.run(r, e.Handle, id, r.core.slab[r.core.slot(e.Handle)].places)
		} else {
			w.flow(id).refused++
		}
	}
	if next := r.core.Advance(w.now); next != never && (next < r.due || r.due <= w.now) {
		r.due = next
		life := r.life
		w.after(max(next-w.now, ms), func() {
			if r.alive && r.life == life {
				w.drain(r)
			}
		})
	}
	if len(r.core.out) > 0 { // like the gate, deliver Advance's events before other input
		w.drain(r)
	}
}

func (w *world) kill(r *replica) {
	r.alive = false
	gone := r.name
	w.after(int64(time.Second), func() {
		for _, p := range w.replicas {
			if p.alive {
				p.core.PeerLeft(w.now, gone)
				w.drain(p)
			}
		}
	})
	for h, id := range r.queued {
		w.flow(id).lost++
		if then := r.then[h]; then != nil {
			w.after(200*ms, then)
		}
	}
}

// until runs the world to the time.
func (w *world) until(t int64) {
	for len(w.events) > 0 && w.events[0].at <= t {
		e := stdheap.Pop(&w.events).(event)
		w.account(e.at)
		e.run()
	}
	w.account(t)
}

func (w *world) account(at int64) {
	dt := float64(at-w.now) / 1e9
	w.now = at
	waiting := false
	for _, r := range w.replicas {
		waiting = waiting || r.alive && len(r.queued) > 0
	}
	for _, f := range w.byFlow {
		f.area += float64(f.running) * dt
	}
	if waiting {
		w.waitingAll += float64(w.capacity) * dt
		w.waitingIdle += float64(max(w.capacity-w.running, 0)) * dt
	}
}

// stream makes requests of a flow arrive at rate per second, spread over replicas by share.
func (w *world) stream(id string, rate float64, share []float64) {
	w.streamOf(rules.Request{Flow: id}, rate, share)
}

// streamOf is stream with given request attributes.
func (w *world) streamOf(a rules.Request, rate float64, share []float64) {
	var next func()
	next = func() {
		at := w.rng.Float64()
		for i, s := range share {
			if at -= s; at < 0 || i == len(share)-1 {
				w.offer(w.replicas[i], a)
				break
			}
		}
		w.after(int64(w.rng.ExpFloat64()/rate*1e9), next)
	}
	w.after(int64(w.rng.ExpFloat64()/rate*1e9), next)
}

// window returns the permit-seconds of each flow from now to t, as fractions.
func (w *world) window(t int64) map[string]float64 {
	return w.shares(func() { w.until(t) })
}

// shares is window during run.
func (w *world) shares(run func()) map[string]float64 {
	before, total := map[string]float64{}, 0.
	for id, f := range w.byFlow {
		before[id] = f.area
	}
	run()
	got := map[string]float64{}
	for id, f := range w.byFlow {
		got[id] = f.area - before[id]
		total += got[id]
	}
	for id := range got {
		got[id] /= total
	}
	return got
}

func (w *world) check(t *testing.T) {
	t.Helper()
	for _, f := range w.failures {
		t.Error(f)
	}
	for id, f := range w.byFlow {
		waiting := 0
		for _, r := range w.replicas {
			if r.alive {
				for _, q := range r.queued {
					if q == id {
						waiting++
					}
				}
			}
		}
		if f.offered != f.served+f.refused+f.lost+waiting {
			t.Errorf("flow %s: %d offered, %d served, %d refused, %d lost with a replica, %d wait", id, f.offered, f.served, f.refused, f.lost, waiting)
		}
	}
}

var tenants = rules.Options{Default: rules.Band{Fairness: rules.Places}, TTL: time.Minute, MaxRequests: 4000}

// TestFleetIsFair: three tenants with demands of 1 to 10 to 100, spread unevenly over three
// replicas, get their demand or equal parts in each ten seconds. This holds even while a replica is
// silent and returns.
func TestFleetIsFair(t *testing.T) {
	s := int64(time.Second)
	w := newWorld(1, 3, 256, 2, tenants)
	w.stream("small", 10, []float64{1, 0, 0})
	w.stream("middle", 100, []float64{.8, .1, .1})
	w.stream("large", 1000, []float64{.05, .15, .8})
	w.until(20 * s)
	check := func(what string) {
		t.Helper()
		waiting := 0.
		got := w.shares(func() { waiting = w.meanWaiting("small", 10*s) })
		t.Logf("%s: small %.3f, middle %.3f, large %.3f of the places; %.2f of small wait in the mean", what, got["small"], got["middle"], got["large"], waiting)
		// The small tenant holds its demand; the others share the rest.
		if waiting > 2 { // of 10 arriving per second
			t.Errorf("%s: on average %.2f requests of tenant small wait", what, waiting)
		}
		for _, id := range []string{"middle", "large"} {
			if want := (1 - got["small"]) / 2; math.Abs(got[id]-want) > .05*want {
				t.Errorf("%s: %s has %.3f of the permits, want %.3f", what, id, got[id], want)
			}
		}
	}
	for range 3 {
		check("all live")
	}
	w.kill(w.replicas[2])
	w.until(w.now + 2*s)
	check("one is gone")
	w.start(w.replicas[2], tenants)
	w.until(w.now + 3*s)
	check("back")
	if over := float64(w.most)/256 - 1; over > .10 {
		t.Errorf("permits in flight exceed the capacity by %.1f%%", 100*over)
	}
	if idle := w.waitingIdle / w.waitingAll; idle > .03 {
		t.Errorf("%.1f%% of the permits were free while requests waited", 100*idle)
	}
	t.Logf("at most %d of 256 places in flight; %.2f%% free while somebody waited", w.most, 100*w.waitingIdle/w.waitingAll)
	w.check(t)
}

// Weights hold across replicas, independent of the replica at which a tenant's requests arrive.
func TestFleetIsFairByWeight(t *testing.T) {
	s := int64(time.Second)
	o := tenants
	o.Default.Weights = map[string]float64{"gold": 3, "silver": 2}
	w := newWorld(2, 3, 240, 2, o)
	w.stream("gold", 200, []float64{1, 0, 0})
	w.stream("silver", 400, []float64{0, .7, .3})
	w.stream("iron", 800, []float64{.2, .4, .4})
	w.until(20 * s)
	for range 2 {
		got := w.window(w.now + 10*s)
		t.Logf("gold %.3f, silver %.3f, iron %.3f of the places", got["gold"], got["silver"], got["iron"])
		for id, want := range map[string]float64{"gold": 3. / 6, "silver": 2. / 6, "iron": 1. / 6} {
			if math.Abs(got[id]-want) > .10*want {
				t.Errorf("%s has %.3f of the permits, want %.3f", id, got[id], want)
			}
		}
	}
	w.check(t)
}

// TestFleetSeeds: under any faults, no request is dispatched twice or lost, permits stay within the
// capacity, and none stays free while requests wait.
func TestFleetSeeds(t *testing.T) {
	for i := range uint64(*fleetSeeds) {
		seed := *fleetFirst + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s := int64(time.Second)
			replicas := 1 + rng.IntN(4)
			mean := .5 + 2*rng.Float64()
			o := tenants
			o.Default.Fairness = []rules.Fairness{rules.Strict, rules.Places, rules.Work, rules.LeastService}[rng.IntN(4)]
			o.Default.Ordering = rules.Ordering(rng.IntN(4))
			o.TTL = time.Duration(1+rng.IntN(20)) * time.Second
			capacity := int64(16 + rng.IntN(200))
			banded := rand.New(rand.NewPCG(seed, 5)) // a separate source, so that seeds keep their faults
			bands := []int{0, 0, 1, 3}[banded.IntN(4)]
			o.Evict = banded.IntN(2) == 0
			w := newWorld(seed, replicas, capacity, mean, o)
			w.delay = min(int64(rng.Float64()*.05*mean*1e9), 100*ms)
			w.loss = []float64{0, 0, .2}[rng.IntN(3)]
			w.sick = rng.IntN(5) == 0
			for f := range 1 + rng.IntN(4) {
				share := make([]float64, replicas)
				for i, v := range rng.Perm(replicas) {
					share[i] = float64(v+1) * 2 / float64(replicas*(replicas+1))
				}
				a := rules.Request{Flow: fmt.Sprint("f", f), Endable: true}
				if bands > 0 {
					a.Priority = banded.IntN(2*bands+1) - bands
				}
				w.streamOf(a, float64(capacity)/mean*(.1+rng.Float64()), share)
			}
			unheard := false
			t.Log("replicas", replicas, "mean", mean, "capacity", capacity, "delay", time.Duration(w.delay), "loss", w.loss, "sick", w.sick, o.Default.Fairness)
			for range rng.IntN(4) {
				w.until(w.now + s + rng.Int64N(3*s))
				r := w.replicas[rng.IntN(replicas)]
				t.Log(time.Duration(w.now), r.name, "alive", r.alive, "cut", r.cut, "running", w.running, "most", w.most)
				switch rng.IntN(3) {
				case 0:
					if r.alive && replicas > 1 {
						w.kill(r)
						unheard = true
					}
				case 1:
					r.cut, unheard = !r.cut, true
				case 2:
					if !r.alive {
						w.start(r, o)
					}
				}
			}
			for _, r := range w.replicas {
				if r.cut = false; !r.alive {
					w.start(r, o)
				}
			}
			w.until(w.now + 5*s)
			limit := max(int64(math.Ceil(1.1*float64(capacity))), capacity+int64(replicas))
			if w.sick && unheard { // no replica sees the permits of the others
				limit = 2*capacity + int64(replicas)
			}
			if w.most > limit {
				t.Errorf("%d permits in flight of %d", w.most, capacity)
			}
			for _, r := range w.replicas {
				f := &r.core.fleet
				t.Log(r.name, "own", r.core.own, "in flight", f.inFlight, "ghost", f.ghost, "stray", f.stray, "bound", f.bound, "silent", f.silent(), "size", f.size(), "waits", r.core.waiting)
			}
			w.waitingIdle, w.waitingAll = 0, 0
			w.until(w.now + 5*s)
			if idle := w.waitingIdle / max(w.waitingAll, 1e-9); w.waitingAll > float64(capacity) && idle > .10+2*float64(replicas)/float64(capacity) {
				t.Errorf("%.1f%% of %d permits were free while requests waited, after all faults", 100*idle, capacity)
			}
			w.check(t)
		})
	}
}

// TestAloneIsExact: a single replica holds exactly all permits while requests wait.
func TestAloneIsExact(t *testing.T) {
	w := newWorld(3, 1, 50, 1, tenants)
	w.stream("a", 200, []float64{1})
	w.until(20 * int64(time.Second))
	if w.most != 50 || w.waitingIdle > 0 {
		t.Errorf("%d permits in flight, %g permit-seconds free while requests waited", w.most, w.waitingIdle)
	}
	w.check(t)
}
