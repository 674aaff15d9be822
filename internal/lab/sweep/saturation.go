package sweep

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
)

// FindSaturation returns the greater of the rates per engine that c's fleet sustains under unified
// and under load_only. The load of a measurement must not depend on the measured policy.
func FindSaturation(ctx context.Context, c replay.Case, s Source) (float64, error) {
	var err error
	if c.Policy, err = replay.PolicyByName("unified"); err != nil {
		return 0, err
	}
	best, err := Saturation(ctx, c, s)
	if err != nil {
		return 0, err
	}
	if c.Policy, err = replay.PolicyByName("load_only"); err != nil {
		return 0, err
	}
	t, err := newTrial(ctx, c, s)
	if err != nil {
		return 0, err
	}
	more, err := t.holds(best * saturationStep)
	if err != nil || !more {
		return best, err
	}
	return t.search(best * saturationStep)
}

// saturationStep is how close a saturation is found.
const saturationStep = 1.04

// Saturation returns the highest rate per engine, within 4%, that c's fleet sustains. A fleet
// sustains a rate if it completes its accepted requests at 95% of their arrival rate. The median
// time to first token must also stay below one second or five times the idle time, the larger of
// the two. c.Trace is not used.
func Saturation(ctx context.Context, c replay.Case, s Source) (float64, error) {
	t, err := newTrial(ctx, c, s)
	if err != nil {
		return 0, err
	}
	return t.search(idleRate)
}

// idleRate is a rate per engine at which any engine has little to do.
const idleRate = .02

// trial tries rates on a fleet.
type trial struct {
	ctx      context.Context
	fleet    replay.Case
	source   Source
	capacity float64
	limit    float64 // seconds, of the median time to first token
}

func newTrial(ctx context.Context, c replay.Case, s Source) (*trial, error) {
	c.Endpoints = cmp.Or(c.Endpoints, 8)
	t := &trial{ctx: ctx, fleet: c, source: s, capacity: c.Capacity()}
	r, err := t.run(idleRate)
	if err != nil {
		return nil, err
	}
	t.limit = max(1, 5*r.TTFT.P50)
	return t, nil
}

func (t *trial) run(perEngine float64) (*replay.Result, error) {
	one := t.fleet
	one.Trace = t.source.sample(perEngine*t.capacity, t.fleet.Seed)
	one.Warmup = one.Trace.Length / 5
	return replay.Run(t.ctx, one)
}

func (t *trial) holds(rate float64) (bool, error) {
	r, err := t.run(rate)
	if err != nil {
		return false, err
	}
	taken := float64(r.Requests - r.Errors) // prompts that no engine has memory for are no load
	return r.Completed*float64(r.Requests) >= .95*taken && r.TTFT.P50 < t.limit, nil
}

// search returns the highest rate that holds, from one that does.
func (t *trial) search(low float64) (float64, error) {
	high := 0.
	for high == 0 || high/low > saturationStep {
		try := low * 2
		if high > 0 {
			try = math.Sqrt(low * high)
		}
		if try > 1000 {
			return 0, fmt.Errorf("%w: no saturation below %v per engine", replay.ErrCase, try)
		}
		ok, err := t.holds(try)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low = try
		default:
			high = try
		}
	}
	return low, nil
}
