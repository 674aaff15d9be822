package clusters

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/plugins/predicted"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
)

// Options of a run. Zero values select the defaults named.
type Options struct {
	Clusters int     // 8
	Engines  int     // of each cluster; 20
	Policy   Policy  // Price
	Day      float64 // seconds of one rise and fall; 240
	Length   float64 // seconds; one Day
	Mean     float64 // mean load as a share of capacity; .65
	Swing    float64 // relative amplitude of the load; .8
	Work     float64 // factor on the length of prompts; 1
	Grain    float64 // prompt tokens per block of the filters; 64
	Home     float64 // share of requests that Weights keeps at home; .5
	Seed     uint64
	Faults   bool
	Quiet    float64 // seconds at the end without faults; a third of Length
}

func (o Options) complete() Options {
	set := func(v *float64, to float64) {
		if *v == 0 {
			*v = to
		}
	}
	if o.Clusters == 0 {
		o.Clusters = 8
	}
	if o.Engines == 0 {
		o.Engines = 20
	}
	if o.Policy == "" {
		o.Policy = Price
	}
	set(&o.Day, 240)
	set(&o.Length, o.Day)
	set(&o.Mean, .65)
	set(&o.Swing, .8)
	set(&o.Work, 1)
	set(&o.Grain, filter.ChunkBytes/4)
	set(&o.Home, .5)
	set(&o.Quiet, o.Length/3)
	return o
}

// Usual requests: a session starts with a long prompt and continues in turns.
const (
	firstTokens = 3000
	turnTokens  = 500
	turns       = 5
	thinks      = 6.0 // seconds between an answer and the next turn
	answers     = 150.0
	looks       = 8 // engines that a picker prices, besides the session's own and the one that is free first
	network     = .004
)

// world is one run.
type world struct {
	o        Options
	rng      *rand.Rand
	now      float64
	queue    events
	clusters []*site
	names    map[string]*site
	sessions int
	out      Result
	control  *control
	cuts     map[[2]int]float64 // end of the cut
}

// site is one cluster.
type site struct {
	index   int
	name    string
	engines []*engine
	first   earliest // of the engines
	fleet   *remotecluster.Fleet
	hops    *federation.Hops
	deadTil float64
}

type session struct {
	home    int
	turn    int
	context int
	where   [2]int // cluster and engine of the last turn; -1 for none
	keys    []block.Key
}

// request is one turn in flight.
type request struct {
	s       *session
	id      int
	site    int // cluster that serves it
	engine  int
	work    endpoint.Work
	sent    float64 // by the client
	first   float64
	hops    int
	token   string // hop token of the federation
	went    cycle.RemoteTerms
	away    bool
	retried bool
	second  bool
	tried   []string // names of clusters
}

func (w *world) at(t float64, do func()) { w.queue.push(t, do) }

// begins is the wall clock at second 0.
var begins = time.Unix(1_700_000_000, 0)

func clock(t float64) time.Time { return begins.Add(time.Duration(t * float64(time.Second))) }

// roundTrip returns the seconds between two clusters, which are placed on a ring.
func (w *world) roundTrip(a, b int) float64 {
	if a == b {
		return 0
	}
	n := len(w.clusters)
	d := (a - b + n) % n
	d = min(d, n-d)
	return .02 + .13*float64(d)/float64(max(n/2, 1))
}

// Run simulates one run.
func Run(o Options) (*Result, error) {
	w := &world{o: o.complete(), rng: rand.New(rand.NewPCG(o.Seed, 99)), cuts: map[[2]int]float64{}, names: map[string]*site{}}
	w.out.Options = w.o
	for i := range w.o.Clusters {
		s := &site{index: i, name: fmt.Sprintf("c%02d", i)}
		for range w.o.Engines {
			s.engines = append(s.engines, &engine{room: max(int(sessionsHeld/w.o.Work), 1)})
		}
		s.first = newEarliest(w.o.Engines)
		w.names[s.name] = s
		w.clusters = append(w.clusters, s)
	}
	if err := w.openControl(); err != nil {
		return nil, err
	}
	for i := range w.clusters {
		w.at(0, func() { w.arrive(i) })
	}
	if w.o.Faults {
		w.at(1, w.fault)
	}
	for w.queue.len() > 0 {
		e := w.queue.pop()
		if e.at > w.o.Length+drained {
			break
		}
		w.now = e.at
		e.do()
	}
	w.finish()
	return &w.out, nil
}

// drained is how many seconds requests have to end after the last arrival.
const drained = 120.0

// capacity returns roughly how many requests per second an engine serves.
func (w *world) capacity() float64 {
	c, sum := endpoint.PriorCost, 0.0
	context := 0
	for turn := range turns {
		n := w.tokens(turn)
		context += n
		sum += c.Base + c.Prefill(endpoint.Work{Input: context, New: n})*1.05
	}
	return turns / sum
}

func (w *world) tokens(turn int) int {
	if turn == 0 {
		return int(firstTokens * w.o.Work)
	}
	return int(turnTokens * w.o.Work)
}

// arrive starts a session and schedules the next one.
func (w *world) arrive(home int) {
	phase := 2 * math.Pi * (w.now/w.o.Day + float64(home)/float64(len(w.clusters)))
	share := w.o.Mean * (1 + w.o.Swing*math.Sin(phase))
	rate := share * w.capacity() * float64(w.o.Engines) / turns
	most := w.o.Mean * (1 + w.o.Swing) * w.capacity() * float64(w.o.Engines) / turns
	if next := w.now + w.rng.ExpFloat64()/most; next < w.o.Length {
		w.at(next, func() { w.arrive(home) })
	}
	if w.rng.Float64()*most > rate || w.now == 0 {
		return
	}
	s := &session{home: home, where: [2]int{-1, -1}}
	s.keys = append(s.keys, block.Key(w.rng.Uint64()|1<<63))
	w.sessions++
	w.turn(s, w.sessions)
}

// turn sends a session's next request.
func (w *world) turn(s *session, id int) {
	if s.turn >= turns || w.now > w.o.Length || w.now < w.clusters[s.home].deadTil {
		return
	}
	s.context += w.tokens(s.turn)
	s.turn++
	for len(s.keys) < int(float64(s.context)/w.o.Grain) {
		s.keys = append(s.keys, block.Key(w.rng.Uint64()|1<<63))
	}
	w.out.Requests++
	w.route(&request{s: s, id: id, site: s.home, sent: w.now})
}

// route chooses the destination of a request at a cluster's gateway.
func (w *world) route(r *request) {
	at := w.clusters[r.site]
	r.engine = w.best(at, r)
	if r.engine < 0 && r.hops > 0 {
		w.fallBack(r)
		return
	}
	if to, terms, ok := w.choose(at, r); ok {
		w.leave(r, at, to, terms)
		return
	}
	if r.engine < 0 {
		w.lose(r)
		return
	}
	w.serve(r)
}

// lose counts a refused request. It is lost if its cluster had the announcement of another live and
// reachable cluster that was not tried.
func (w *world) lose(r *request) {
	w.out.Refused++
	home := w.clusters[r.s.home]
	if w.now < home.deadTil || len(r.tried) >= 2 { // the proxy has the names of two
		return
	}
	for _, st := range home.fleet.Status(clock(w.now)) {
		s := w.named(st.Cluster)
		known := st.Result == "candidate" || st.Result == "no address" || st.Result == "failed of late" || st.Result == "saturated"
		if known && w.now >= s.deadTil && !w.cut(home.index, s.index) && !s.engines[0].down && !slices.Contains(r.tried, st.Cluster) {
			w.out.Lost++
			return
		}
	}
}

// best returns the engine with the best price in a cluster and its work, or -1 if all are dead.
func (w *world) best(at *site, r *request) int {
	best, least := -1, math.Inf(1)
	try := func(i int) {
		e := at.engines[i]
		if e.down || w.now < at.deadTil {
			return
		}
		work := w.work(e, r)
		l := e.load()
		p := params.Predict(&cost, &l, work, e.wait(w.now), answers)
		if price := p.TTFT() + p.Others; price < least {
			best, least, r.work = i, price, work
		}
	}
	if r.s.where[0] == at.index {
		try(r.s.where[1])
	}
	if len(at.engines) <= looks {
		for i := range at.engines {
			try(i)
		}
		return best
	}
	try(at.first.engine())
	for range looks {
		try(w.rng.IntN(len(at.engines)))
	}
	return best
}

var (
	params = predicted.Defaults
	cost   = endpoint.PriorCost
)

func (w *world) work(e *engine, r *request) endpoint.Work {
	work := endpoint.Work{Input: r.s.context, New: r.s.context}
	if r.s.turn > 1 && e.holds(r.id) {
		work.New = w.tokens(r.s.turn - 1)
	}
	return work
}

// leave forwards a request to another cluster with a hop token.
func (w *world) leave(r *request, from, to *site, terms cycle.RemoteTerms) {
	if r.hops++; r.hops > 1 {
		w.out.Loops++
	}
	r.away, r.went, r.tried = true, terms, append(r.tried, to.name)
	if from.hops != nil {
		r.token = from.hops.Sign(to.name, r.hops, clock(w.now))
	}
	from.fleet.Book(to.name, cost.Prefill(r.work), r.s.keys, clock(w.now))
	w.out.Away++
	if w.cut(from.index, to.index) || w.now < to.deadTil {
		w.at(w.now+.01, func() { w.fallBack(r) }) // the proxy cannot connect
		return
	}
	r.site = to.index
	w.at(w.now+w.roundTrip(from.index, to.index)/2, func() { w.route(r) })
}

// fallBack acts as the proxy when the first destination fails: it tries an engine at home.
func (w *world) fallBack(r *request) {
	home := w.clusters[r.s.home]
	w.reportEnd(r, picker.RemoteOutcome{Sent: clock(r.sent), At: clock(w.now), Cause: health.Broken})
	w.out.Retried++
	r.away, r.retried, r.site = false, true, home.index
	if r.engine = w.best(home, r); r.engine >= 0 {
		w.serve(r)
		return
	}
	r.hops, r.token = 0, ""
	if to, terms, ok := w.standBy(home, r); ok {
		r.second = true
		w.leave(r, home, to, terms)
		return
	}
	w.lose(r)
}

// standBy returns the cluster that can serve if no engine at home can.
func (w *world) standBy(home *site, r *request) (*site, cycle.RemoteTerms, bool) {
	if r.second {
		return nil, cycle.RemoteTerms{}, false
	}
	if to, terms, ok := w.choose(home, r); ok && to.name != r.went.Cluster {
		return to, terms, ok
	}
	return w.reported(home, func(s *site, load float64) float64 {
		if s.name == r.went.Cluster {
			return math.Inf(1)
		}
		return load
	})
}

func (w *world) reportEnd(r *request, e picker.RemoteOutcome) {
	e.Predicted = r.went.Prediction
	w.clusters[r.s.home].fleet.Ended(&endpoint.Endpoint{Spec: endpoint.Spec{Cluster: r.went.Cluster}}, e)
}

// serve runs the request at its engine.
func (w *world) serve(r *request) {
	at := w.clusters[r.site]
	e := at.engines[r.engine]
	work := w.work(e, r)
	first, end := e.begin(w.now, work, answers)
	e.hold(r.id)
	at.first.set(r.engine, e.free)
	r.s.where = [2]int{r.site, r.engine}
	w.control.hot(at, r.s.keys)
	back := network + w.roundTrip(r.s.home, r.site)/2
	w.at(first, func() {
		e.started(work)
		if w.now < at.deadTil {
			return
		}
		r.first = w.now + back - r.sent
		w.out.count(w, r, work)
		if r.away {
			w.reportEnd(r, picker.RemoteOutcome{Sent: clock(r.sent), At: clock(w.now), Cause: health.None, Complete: true, First: time.Duration(r.first * float64(time.Second))})
		}
	})
	w.at(end, func() {
		e.ended(work)
		if w.now < at.deadTil {
			w.out.Broken++ // its cluster died during the answer
			return
		}
		s := r.s
		w.at(w.now+back+thinks*(.5+w.rng.Float64()), func() { w.turn(s, r.id) })
	})
}
