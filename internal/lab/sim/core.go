package sim

import (
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// core drives one engine.Engine against real time. One goroutine owns the
// engine; others post functions to it, which run between steps.
type core struct {
	rank   int
	eng    *engine.Engine
	pub    *kvstream.Publisher // nil: no events
	format kvstream.Format
	meter  *page.Meter
	every  int // tokens between two notices to a job

	mu     sync.Mutex
	posted []func()
	pace   pace
	closed bool
	load   int // jobs posted and not ended

	pd        *PDOptions
	leases    map[string]*lease // owned by the goroutine
	transfers transfers

	wake chan struct{} // something was posted, or the pace changed
	done chan struct{}

	jobs map[uint64]*job // owned by the goroutine
	last uint64
	end  time.Time // when the last step ended
}

// pace is how the core's time runs.
type pace struct {
	speed float64 // model time per real time; +Inf: steps take no time
	slow  float64 // steps take so many times longer
	hung  bool    // no step begins
}

func newCore(rank int, o *Options, pub *kvstream.Publisher, names func(uint32) string) (*core, error) {
	cfg := o.Core
	cfg.Events, cfg.EveryToken = pub != nil, true
	eng, err := engine.New(cfg)
	if err != nil {
		return nil, err
	}
	c := &core{
		rank: rank, eng: eng, pub: pub, every: max(1, o.StreamInterval),
		meter: page.NewMeter(eng.Config(), names), pace: pace{speed: o.Speed, slow: 1},
		wake: make(chan struct{}, 1), done: make(chan struct{}), jobs: map[uint64]*job{},
		leases: map[string]*lease{}, pd: o.PD,
	}
	if c.pd == nil {
		c.pd = PDOptions{}.withDefaults()
	}
	if o.Events != nil {
		c.format = o.Events.Format
	}
	c.meter.Gauges(eng.Stats())
	go c.run()
	return c, nil
}

// close stops the goroutine and waits for it. Jobs that have not ended fail.
func (c *core) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.poke()
	<-c.done
}

func (c *core) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// post has the goroutine call f between two steps. It returns false when the
// core is closed.
func (c *core) post(f func()) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.posted = append(c.posted, f)
	}
	c.mu.Unlock()
	c.poke()
	return ok
}

func (c *core) setPace(change func(*pace)) {
	c.mu.Lock()
	change(&c.pace)
	c.mu.Unlock()
	c.poke()
}

func (c *core) speed() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace.speed
}

// inFlight is the number of jobs submitted and not ended.
func (c *core) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load
}

// submit hands a job to the engine. Its outcome arrives at the job.
func (c *core) submit(j *job) {
	c.mu.Lock()
	c.load++
	c.mu.Unlock()
	ok := c.post(func() {
		c.last++
		j.req.ID = c.last
		if err := c.eng.Submit(j.req); err != nil {
			c.finish(j, err)
			return
		}
		c.jobs[j.req.ID] = j
	})
	if !ok {
		c.finish(j, errStopped)
	}
}

// abort ends a job whose client has gone; it does nothing to one that has
// ended.
func (c *core) abort(j *job) {
	if _, _, over, _ := j.state(); over {
		return
	}
	c.post(func() {
		if c.jobs[j.req.ID] == j && c.eng.Abort(j.req.ID) {
			c.meter.Ended(page.ReasonAbort)
			c.finish(j, errAborted)
		}
	})
}

func (c *core) finish(j *job, err error) {
	delete(c.jobs, j.req.ID)
	c.mu.Lock()
	c.load--
	c.mu.Unlock()
	j.end(err)
}

// run is the core's goroutine.
func (c *core) run() {
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
		if p.hung || c.eng.Idle() {
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

// drain runs what was posted.
func (c *core) drain() (p pace, open bool) {
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

// maxLag is how far a core may fall behind its own time before it stops to
// catch up.
const maxLag = 50 * time.Millisecond

// sleep waits for the end of a step that takes d in the model's time. Steps
// follow each other without a gap: what a timer is late by, the next step
// makes up for. It returns false when the core is closed.
func (c *core) sleep(d time.Duration, p pace) bool {
	now := time.Now()
	if math.IsInf(p.speed, 1) || now.Sub(c.end) > maxLag {
		c.end = now
	}
	if !math.IsInf(p.speed, 1) {
		c.end = c.end.Add(time.Duration(float64(d) * p.slow / p.speed))
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
			// What was posted waits for the end of the step, and drain will find it.
		}
	}
}

// deliver makes the effects of a step seen: counts before answers, so that
// who has an answer finds it counted.
func (c *core) deliver(r *engine.Result) {
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
		c.meter.Token(&j.Life, m, now)
		last := m.Generated >= j.req.Output
		j.progress(m, last || m.Generated == 1 || m.Generated%c.every == 0)
		if last {
			if j.req.Hold {
				c.hold(j)
				c.meter.Gauges(c.eng.Stats())
			}
			c.meter.Done(&j.Life, now)
			c.finish(j, nil)
		}
	}
}

// fail ends every job when the core stops.
func (c *core) fail() {
	c.drop()
	for _, j := range c.jobs {
		c.finish(j, errStopped)
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
			c.finish(j, errStopped)
		}
	}
}
