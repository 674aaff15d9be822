package endpoint

import (
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint/fit"
)

// Timed is the part of an endpoint's state that changes with the time alone. Together with the load
// and the gauges of ReadState it gives the state at any later time, without reading the endpoint
// again.
type Timed struct {
	sampled int64 // time of the gauges; 0: none
	slots   fit.KeptSlots
	Rates   Rates
}

// Rates are Load.Rate and Load.Busy at any time: the parts that do not decay, and those that do, as
// of the clock's epoch.
type Rates struct {
	rate, busy             float64
	fadingRate, fadingBusy float64
}

// Clock is the time of a decision. The zero value must be set before use.
type Clock struct {
	set        bool
	epoch      int64 // of the rates of all Timed values of this clock
	now        int64
	rate, busy float64 // decay of the rates since the epoch
}

// Set sets the time. It returns false if the epoch had to be changed: Timed values read before are
// invalid then.
func (c *Clock) Set(now int64) bool {
	// The epoch depends on the time alone, so that equal decisions give equal results, to the last
	// digit. It changes often enough to keep rates as of the epoch in the range of a float64.
	epoch := now - now%int64(busyWindow)
	same := c.set && c.epoch == epoch
	c.epoch, c.now, c.set = epoch, now, true
	c.rate, c.busy = fade(now - c.epoch)
	return same
}

// ReadState reads the endpoint's load over all replicas and its gauges, except for the parts that
// t.Advance sets.
func (e *Endpoint) ReadState(l *Load, r *Reading, t *Timed, c *Clock) {
	*l, *t = Load{}, Timed{}
	b := &e.book
	b.local.addTo(l)
	b.localRates.keep(&t.Rates, c)
	if b.shared.Load() {
		b.remote.addTo(l)
		b.remoteRates.keep(&t.Rates, c)
	}
	g := e.gauges.get()
	if *r = g.reading(); r.Sampled {
		t.sampled, t.slots = g.At.UnixNano(), e.slots.Keep()
	}
}

// Now returns the time in Unix nanoseconds.
func (c *Clock) Now() int64 { return c.now }

// At returns the rates at the time of the clock.
func (t *Rates) At(c *Clock) (rate, busy float64) {
	return t.rate + t.fadingRate*c.rate, t.busy + t.fadingBusy*c.busy
}

// Sampled returns the time of the gauges in Unix nanoseconds, 0 if there are none.
func (t *Timed) Sampled() int64 { return t.sampled }

// Advance sets the parts of l and r that depend on the time.
func (t *Timed) Advance(l *Load, r *Reading, c *Clock) {
	l.Rate, l.Busy = t.Rates.At(c)
	r.Slots, r.Ran = t.slots.At(c.now)
	if t.sampled != 0 {
		r.Age = time.Duration(c.now - t.sampled)
	}
}

// Slots returns the engine's sequence limit.
func (t *Timed) Slots() fit.KeptSlots { return t.slots }

// keep adds the rates to t.
func (c *rateCell) keep(t *Rates, clock *Clock) {
	rate, busy := math.Float64frombits(c.rate.Load()), math.Float64frombits(c.busy.Load())
	at := c.at.Load()
	if at == 0 || rate == 0 && busy == 0 {
		t.rate, t.busy = t.rate+rate, t.busy+busy
		return
	}
	grown := math.Exp(float64(at-clock.epoch) / float64(busyWindow))
	square := grown * grown
	t.fadingRate += rate * square * square * grown
	t.fadingBusy += busy * grown
}
