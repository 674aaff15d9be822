package flow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/internal/room"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Limits on state that clients can create in a Core.
const (
	maxFlows    = 10_000 // beyond this, flows share sharedFlows flows
	sharedFlows = 64
	maxBands    = 64 // beyond this, requests join the next lower band
	idleFlow    = 5 * time.Minute
	longestTTL  = 365 * 24 * time.Hour // short enough to add to arrival times without overflow
)

// band is the queue of one priority.
type band struct {
	rules.Band
	busy     []*flow // flows with waiting requests; a heap while ranked
	ranked   bool
	rankedAt int64
	waiting  int   // requests
	places   int64 // waiting, in permits
	bytes    int64
	own      int64 // permits in flight
	arrivals line  // waiting requests
	flight   line
	lastUse  int64
	virtual  float64 // for Work: the start tag of the flow served last

	asked    [room.Stretches]int64 // minimum of permits waiting in each period of the allowance
	others   queued                // waiting at other replicas
	live     []*flow               // flows that hold or wait for permits at any replica
	active   []*flow               // the same, sorted by demand, from the last share computation
	ceiling  float64               // last value of the usage limit
	weights  float64               // total weight of flows with demand anywhere
	most     largest
	entitled float64 // permits that this replica may hold, unless dirty
	dirty    bool
}

// flow is one tenant's requests in one band.
type flow struct {
	id   string
	band *band
	heap heap
	at   int // index in band.busy, -1 if nothing waits

	waiting, bytes int64       // in permits and in bytes
	own            int64       // permits in flight
	others         rules.Gauge // sum over the other live replicas
	ghost          float64

	weight  float64
	fair    float64 // its current share in permits
	target  float64 // its share adjusted for its deficit
	parted  float64 // this replica's part of the target, as counted by its band
	score   float64 // valid while its band is ranked
	waits   bool    // has demand anywhere, as counted by its band
	deficit float64 // permit-seconds owed to it
	tag     float64 // for Work: start tag of its next request

	service  float64 // decayed, in seconds
	serveAt  int64
	servedAt uint64
	turns    int64   // requests dispatched, for MostTurns
	ratio    float64 // see Core.ratio
	lastUse  int64

	normService, normWait float64 // for LeastService: 0 to 1 among flows with waiting requests

	prev, next *flow // list of idle flows
	idle       bool
	liveAt     int // index in band.live, while not idle
}

func (f *flow) use(now int64) {
	f.lastUse, f.band.lastUse = now, now
}

// held returns the flow's permits in flight at all replicas.
func (f *flow) held() float64 { return float64(f.own+f.others.InFlight) + f.ghost }

// demand returns the permits that the flow holds and waits for at all replicas.
func (f *flow) demand() float64 { return f.held() + float64(f.waiting+f.others.Waiting) }

// waitsAnywhere reports whether the flow has requests waiting at any replica.
func (f *flow) waitsAnywhere() bool { return f.waiting+f.others.Waiting > 0 }

// serve adds engine seconds to the flow's service. Earlier service decays with the half-life.
func (f *flow) serve(now int64, s float64, halfLife time.Duration) {
	if halfLife > 0 && f.service != 0 {
		f.service *= math.Exp2(-float64(now-f.serveAt) / float64(halfLife))
	}
	f.service, f.serveAt = max(f.service+s, 0), now
	if f.band.Fairness == rules.Work {
		f.tag += s / f.weight
	}
}

// lift raises the tag of a flow that was idle, so that it gains nothing from not having waited.
func (f *flow) lift() { f.tag = max(f.tag, f.band.virtual) }

// usedBand is how long a band counts for usage limits after its last request.
const usedBand = int64(time.Minute)

func (b *band) used(now int64) bool {
	return b.waiting > 0 || b.own > 0 || (b.lastUse > 0 && now-b.lastUse < usedBand)
}

// scoreOf returns the score of a flow with head w. The lowest score is dispatched first.
func (b *band) scoreOf(f *flow, w *waiter) float64 {
	switch b.Fairness {
	case rules.Places:
		return (f.held() + float64(w.places)) / max(f.target, 1e-9)
	case rules.Work:
		return f.tag
	case rules.LeastService:
		return b.Service.WeightService*f.normService - b.Service.WeightHeadWait*f.normWait
	case rules.MostTurns: // both waits grow alike, so the order of two heads does not change with time
		return b.Service.WeightTime*float64(w.offered)/float64(time.Second) - float64(f.turns)
	default:
		return 0
	}
}

// normalize scales each waiting flow's service and its head's wait to the range from the lowest to
// the highest value.
func (b *band) normalize(s []waiter, now int64) {
	if b.Fairness != rules.LeastService {
		return
	}
	service, wait := span{math.Inf(1), math.Inf(-1)}, span{math.Inf(1), math.Inf(-1)}
	for _, f := range b.busy {
		f.serve(now, 0, b.Service.HalfLife)
		service.add(f.service)
		wait.add(float64(now - s[f.heap.items[0]].offered))
	}
	for _, f := range b.busy {
		f.normService = service.norm(f.service)
		f.normWait = wait.norm(float64(now - s[f.heap.items[0]].offered))
	}
}

type span struct{ low, high float64 }

func (s *span) add(v float64) { s.low, s.high = min(s.low, v), max(s.high, v) }

func (s span) norm(v float64) float64 {
	if s.high <= s.low {
		return 0
	}
	return (v - s.low) / (s.high - s.low)
}

// join appends a request to the band's arrival list.
func (b *band) join(s []waiter, i int32) {
	b.arrivals.insert(s, i)
	b.waiting++
	b.places += s[i].places
	b.bytes += s[i].bytes
}

func (b *band) part(s []waiter, i int32) {
	b.arrivals.remove(s, i)
	b.waiting--
	b.places -= s[i].places
	b.bytes -= s[i].bytes
}

// busy adds a flow to the flows with waiting requests. Until the next share computation it gets the
// share of a flow with its weight.
func (c *Core) busy(f *flow) {
	c.awake(f)
	f.lift()
	f.band.enlist(c.slab, f)
	f.use(c.now)
}

// band returns the band of a priority. A new one is created from a template.
func (c *Core) band(priority int) *band {
	at, found := slices.BinarySearchFunc(c.bands, priority, func(b *band, p int) int { return cmp.Compare(p, b.Priority) })
	if found {
		return c.bands[at]
	}
	if len(c.bands) >= maxBands {
		return c.bands[min(at, len(c.bands)-1)]
	}
	spec := c.o.Default
	if priority < 0 {
		spec = c.o.Negative
	}
	spec.Priority = priority
	return c.addBand(spec)
}

func (c *Core) addBand(spec rules.Band) *band {
	spec.TTL = min(spec.TTL, longestTTL)
	b := &band{Band: spec, arrivals: line{none, none}, flight: line{none, none}, ceiling: 1}
	at, found := slices.BinarySearchFunc(c.bands, spec.Priority, func(b *band, p int) int { return cmp.Compare(p, b.Priority) })
	if !found {
		c.bands = slices.Insert(c.bands, at, b)
	}
	return c.bands[at]
}
