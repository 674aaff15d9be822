package flow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/flow/internal/room"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// Bounds of what clients can make a Core keep.
const (
	maxFlows    = 10_000 // beyond, flows share sharedFlows of them
	sharedFlows = 64
	maxBands    = 64 // beyond, requests join the band just below
	idleFlow    = 5 * time.Minute
	longestTTL  = 365 * 24 * time.Hour // so that arrivals and times to wait can be added
)

// band is the queue of one priority.
type band struct {
	rules.Band
	busy     []*flow // flows that wait; a heap while ranked
	ranked   bool
	rankedAt int64
	waiting  int   // requests
	places   int64 // the same, in places
	bytes    int64
	own      int64 // places in flight
	arrivals line  // requests that wait
	flight   line
	lastUse  int64
	virtual  float64 // of Work: the start tag of the flow served last

	asked    [room.Stretches]int64 // the least that waited, in places, in each stretch of the allowance
	others   queued                // waiting at other replicas
	live     []*flow               // that hold or wait for something, anywhere
	active   []*flow               // the same as shares were computed last, by demand
	ceiling  float64               // as the usage limit said last
	weights  float64               // of flows that wait anywhere
	most     largest
	entitled float64 // places that this replica may hold, while not dirty
	dirty    bool
}

// flow is the requests of one tenant in one band.
type flow struct {
	id   string
	band *band
	heap heap
	at   int // in band.busy, -1 when nothing waits

	waiting, bytes int64       // places, bytes
	own            int64       // places in flight
	others         rules.Gauge // of the living other replicas, summed
	ghost          float64

	weight  float64
	fair    float64 // places that are its share at this moment
	target  float64 // the same, with its deficit made good
	parted  float64 // what of that is this replica's, as its band counts it
	score   float64 // while its band is ranked
	waits   bool    // anywhere, as its band counts it
	deficit float64 // place-seconds that it is owed
	tag     float64 // of Work: where its next request starts

	service  float64 // decayed seconds
	serveAt  int64
	servedAt uint64
	ratio    float64 // as Core.ratio
	lastUse  int64

	normService, normWait float64 // of LeastService: 0 to 1 among the flows that wait

	prev, next *flow // in the list of idle flows
	idle       bool
	liveAt     int // in band.live, while it is not idle
}

func (f *flow) use(now int64) {
	f.lastUse, f.band.lastUse = now, now
}

// held returns the flow's places in flight, everywhere.
func (f *flow) held() float64 { return float64(f.own+f.others.InFlight) + f.ghost }

// demand returns what the flow holds and waits for, everywhere.
func (f *flow) demand() float64 { return f.held() + float64(f.waiting+f.others.Waiting) }

// waitsAnywhere reports whether the flow wants more than it holds.
func (f *flow) waitsAnywhere() bool { return f.waiting+f.others.Waiting > 0 }

// serve notes that the flow took seconds of an engine; what it took earlier counts
// half after each half-life.
func (f *flow) serve(now int64, s float64, halfLife time.Duration) {
	if halfLife > 0 && f.service != 0 {
		f.service *= math.Exp2(-float64(now-f.serveAt) / float64(halfLife))
	}
	f.service, f.serveAt = max(f.service+s, 0), now
	if f.band.Fairness == rules.Work {
		f.tag += s / f.weight
	}
}

// lift takes from a flow that did not wait what it did not use.
func (f *flow) lift() { f.tag = max(f.tag, f.band.virtual) }

// usedBand is how long a band counts for usage limits after its last request.
const usedBand = int64(time.Minute)

func (b *band) used(now int64) bool {
	return b.waiting > 0 || b.own > 0 || (b.lastUse > 0 && now-b.lastUse < usedBand)
}

// scoreOf a flow whose head is w: the least goes first.
func (b *band) scoreOf(f *flow, w *waiter) float64 {
	switch b.Fairness {
	case rules.Places:
		return (f.held() + float64(w.places)) / max(f.target, 1e-9)
	case rules.Work:
		return f.tag
	case rules.LeastService:
		return b.Service.WeightService*f.normService - b.Service.WeightHeadWait*f.normWait
	default:
		return 0
	}
}

// normalize sets where each waiting flow's service and head's wait lie between the
// least and the most of them.
func (b *band) normalize(s []waiter, now int64) {
	if b.Fairness != rules.LeastService {
		return
	}
	service, wait := span{math.Inf(1), math.Inf(-1)}, span{math.Inf(1), math.Inf(-1)}
	for _, f := range b.busy {
		f.serve(now, 0, b.Service.HalfLife)
		service.add(f.service)
		wait.add(float64(now - s[f.heap.items[0]].arrival))
	}
	for _, f := range b.busy {
		f.normService = service.norm(f.service)
		f.normWait = wait.norm(float64(now - s[f.heap.items[0]].arrival))
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

// join appends a request to the band's list by arrival.
func (b *band) join(s []waiter, i int32) {
	b.arrivals.append(s, i)
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

// busy puts a flow among those that wait. Until shares are computed again it gets
// what flows of its weight get.
func (c *Core) busy(f *flow) {
	c.awake(f)
	f.lift()
	f.band.enlist(c.slab, f)
	f.use(c.now)
}

// band returns the band of a priority, made from a template when it is new.
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
	b := &band{Band: spec, arrivals: line{none, none}, flight: line{none, none}, ceiling: 1}
	at, found := slices.BinarySearchFunc(c.bands, spec.Priority, func(b *band, p int) int { return cmp.Compare(p, b.Priority) })
	if !found {
		c.bands = slices.Insert(c.bands, at, b)
	}
	return c.bands[at]
}
