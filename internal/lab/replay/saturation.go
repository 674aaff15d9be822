package replay

import (
	"context"
	"fmt"
)

// FindSaturation returns the greater of the rates per engine that c's fleet
// sustains under load_only and under unified: what policies are measured at must
// not depend on the one that is measured.
func FindSaturation(ctx context.Context, c Case, s Source) (float64, error) {
	best := 0.0
	for _, name := range []string{"load_only", "unified"} {
		p, err := PolicyByName(name)
		if err != nil {
			return 0, err
		}
		c.Policy = p
		rate, err := Saturation(ctx, c, s)
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	return best, nil
}

// Saturation returns the highest rate per engine, within 2%, at which c's
// fleet completes requests at 95% of the rate of their arrival and the median
// time to first token stays below a second or five times that of
// an idle fleet, whichever is more. c.Trace is not used.
func Saturation(ctx context.Context, c Case, s Source) (float64, error) {
	setDefault(&c.Endpoints, 8)
	capacity := c.capacity()
	run := func(perEngine float64) (*Result, error) {
		one := c
		one.Trace = s.sample(perEngine*capacity, c.Seed)
		one.Warmup = one.Trace.Length / 5
		return Run(ctx, one)
	}
	const idle = .02
	r, err := run(idle)
	if err != nil {
		return 0, err
	}
	limit := max(1, 5*r.TTFT.P50)
	holds := func(rate float64) (bool, error) {
		r, err := run(rate)
		return err == nil && r.Completed >= .95 && r.TTFT.P50 < limit, err
	}
	low, high := idle, 0.
	for high == 0 || high/low > 1.02 {
		try := low * 2
		if high > 0 {
			try = (low + high) / 2
		}
		if try > 1000 {
			return 0, fmt.Errorf("%w: no saturation below %v per engine", ErrCase, try)
		}
		ok, err := holds(try)
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
