package core

import (
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// Core drives one engine.Engine against real time. One goroutine owns the
// engine; others post functions to it, which run between steps.
type Core struct {
	rank   int
	eng    *engine.Engine
	pub    *kvstream.Publisher // nil: no events
	format kvstream.Format
	meter  *page.Meter
	every  int // tokens between two notices to a job

	mu     sync.Mutex
	posted []func()
	pace   Pace
	closed bool
	load   int // jobs posted and not ended

	lease     time.Duration
	leases    map[string]*lease // owned by the goroutine
	transfers Transfers

	wake chan struct{} // something was posted, or the pace changed
	done chan struct{}

	jobs map[uint64]*Job // owned by the goroutine
	last uint64
	end  time.Time // when the last step ended
}

// Pace is how the core's time runs.
type Pace struct {
	Speed float64 // model time per real time; +Inf: steps take no time
	Slow  float64 // factor on step times
	Hung  bool    // no step begins
}

// Options describe a core.
type Options struct {
	Engine engine.Config
	Speed  float64 // model time per real time
	Every  int     // tokens between two notices to a job; below 1 counts as 1
	Rank   int     // data-parallel rank
	// Events receives the engine's cache events, in Format; nil disables publishing.
	Events *kvstream.Publisher
	Format kvstream.Format
	Lease  time.Duration // that blocks are kept for other engines to read
	// Names returns the name of an adapter id.
	Names func(uint32) string
}

// New starts a core.
func New(o Options) (*Core, error) {
	cfg := o.Engine
	cfg.Events, cfg.EveryToken = o.Events != nil, true
	eng, err := engine.New(cfg)
	if err != nil {
		return nil, err
	}
	c := &Core{
		rank: o.Rank, eng: eng, pub: o.Events, format: o.Format, every: max(1, o.Every),
		meter: page.NewMeter(eng.Config(), o.Names), pace: Pace{Speed: o.Speed, Slow: 1},
		wake: make(chan struct{}, 1), done: make(chan struct{}), jobs: map[uint64]*Job{},
		leases: map[string]*lease{}, lease: o.Lease,
	}
	c.meter.ReadTransfers(c.transfers.counts)
	c.meter.Gauges(eng.Stats())
	go c.run()
	return c, nil
}

// Meter returns the core's counters.
func (c *Core) Meter() *page.Meter { return c.meter }

// ResetCache empties the engine's prefix cache between two steps.
func (c *Core) ResetCache() { c.post(func() { c.eng.ResetPrefixCache() }) }

// Cached returns how many of a prompt's blocks the engine has cached, 0 when it is closed.
func (c *Core) Cached(names []uint64) int {
	n, _ := ask(c, func() int { return c.eng.Cached(hashes(names)) })
	return n
}

// Close stops the goroutine and waits until it has ended. Unfinished jobs fail.
func (c *Core) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.poke()
	<-c.done
}

func (c *Core) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// post has the goroutine call f between two steps. It returns false when the
// core is closed.
func (c *Core) post(f func()) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.posted = append(c.posted, f)
	}
	c.mu.Unlock()
	c.poke()
	return ok
}

// SetPace changes how the core's time runs.
func (c *Core) SetPace(change func(*Pace)) {
	c.mu.Lock()
	change(&c.pace)
	c.mu.Unlock()
	c.poke()
}

// Speed returns model time per real time.
func (c *Core) Speed() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace.Speed
}

// InFlight is the number of jobs submitted and not ended.
func (c *Core) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load
}

// Submit hands a job to the engine. Its outcome arrives at the job.
func (c *Core) Submit(j *Job) {
	c.mu.Lock()
	c.load++
	c.mu.Unlock()
	ok := c.post(func() {
		c.last++
		j.Req.ID = c.last
		if err := c.eng.Submit(j.Req); err != nil {
			c.finish(j, err)
			return
		}
		c.jobs[j.Req.ID] = j
	})
	if !ok {
		c.finish(j, ErrStopped)
	}
}

// Abort ends a job whose client disconnected. It has no effect on a finished job.
func (c *Core) Abort(j *Job) {
	if _, _, over, _ := j.State(); over {
		return
	}
	c.post(func() {
		if c.jobs[j.Req.ID] == j && c.eng.Abort(j.Req.ID) {
			c.meter.Ended(page.ReasonAbort)
			c.finish(j, ErrAborted)
		}
	})
}

func (c *Core) finish(j *Job, err error) {
	delete(c.jobs, j.Req.ID)
	c.mu.Lock()
	c.load--
	c.mu.Unlock()
	j.end(err)
}

// run is the core's goroutine.
func (c *Core) run() {
	defer close(c.done)
	c.end = time.Now()
	for {
		p, open := c.drain()
		if !open {
			c.fail()
			return
		}
		c.meter.Gauges(c.eng.Stats())
		c.meter.Adapters(c.eng)
		if p.Hung || c.eng.Idle() {
			<-c.wake
			c.end = time.Now()
			continue
		}
		begun := time.Now()
		r := c.eng.Step()
		for _, id := range r.Admitted {
			c.jobs[id].Begun = begun
		}
		if !c.sleep(r.Duration, p) {
			c.fail()
			return
		}
		c.deliver(r)
	}
}

// drain runs the posted functions.
func (c *Core) drain() (p Pace, open bool) {
	for {
		c.mu.Lock()
		todo := c.posted
		c.posted = nil
		p, open = c.pace, !c.closed
		c.mu.Unlock()
		if len(todo) == 0 {
			return p, open
		}
		for _, f := range todo {
			f()
		}
	}
}

// maxLag is how far a core may fall behind the model's time before the lag is dropped.
const maxLag = 50 * time.Millisecond

// sleep waits for the end of a step that takes d in the model's time. Steps follow each other
// without gaps: the next step compensates for a late timer. It returns false when the core is
// closed.
func (c *Core) sleep(d time.Duration, p Pace) bool {
	now := time.Now()
	if math.IsInf(p.Speed, 1) || now.Sub(c.end) > maxLag {
		c.end = now
	}
	if !math.IsInf(p.Speed, 1) {
		c.end = c.end.Add(time.Duration(float64(d) * p.Slow / p.Speed))
	}
	for {
		wait := time.Until(c.end)
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			return true
		case <-c.wake:
			timer.Stop()
			c.mu.Lock()
			closed := c.closed
			c.mu.Unlock()
			if closed {
				return false
			}
			// Posted functions wait for the end of the step; drain runs them.
		}
	}
}

// deliver makes the effects of a step seen: counts before answers, so that
// who has an answer finds it counted.
func (c *Core) deliver(r *engine.Result) {
	now := time.Now()
	c.meter.Step(r)
	c.meter.Gauges(c.eng.Stats())
	if c.pub != nil && len(r.Events) > 0 {
		b := kvstream.Batch{Time: float64(now.UnixNano()) / 1e9, Rank: c.rank, BlockSize: c.eng.Config().BlockSize}
		c.pub.Publish(kvstream.AppendBatch(nil, c.format, b, r.Events))
	}
	for _, m := range r.Tokens {
		j := c.jobs[m.ID]
		if j == nil {
			continue
		}
		c.meter.Token(&j.RequestTimes, m, now)
		last := m.Generated >= j.Req.Output
		j.progress(m, last || m.Generated == 1 || m.Generated%c.every == 0)
		if last {
			if j.Req.Hold {
				c.hold(j)
				c.meter.Gauges(c.eng.Stats())
			}
			c.meter.Done(&j.RequestTimes, now)
			c.finish(j, nil)
		}
	}
}

// fail ends every job when the core stops.
func (c *Core) fail() {
	c.drop()
	for _, j := range c.jobs {
		c.finish(j, ErrStopped)
	}
	for { // jobs posted while closing
		c.mu.Lock()
		todo := c.posted
		c.posted = nil
		c.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, f := range todo {
			f()
		}
		for _, j := range c.jobs {
			c.finish(j, ErrStopped)
		}
	}
}
