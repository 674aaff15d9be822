package picker

import (
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// split reports whether another endpoint computes the prompt.
func (f *flight) split() bool { return f.leads() != nil }

// leads returns the endpoint for whose prefill the first token waits, nil when that is
// the one that serves.
func (f *flight) leads() *helper {
	for i := range f.helpers {
		if f.helpers[i].Leads {
			return &f.helpers[i]
		}
	}
	return nil
}

// learnSplit teaches what the first token of a request served in parts shows. With a
// proxy's report the prefill and the hand-over are known apart; without, what was
// expected of the hand-over is taken off, and only the prefill is taught.
func (f *flight) learnSplit(at time.Time) {
	h, pool := f.leads(), f.s.opts.Pool
	if f.report.Known {
		if f.report.Target == 0 && f.report.Prefill > 0 && f.serving == &f.own {
			pool.LearnPrefill(h.Endpoint(), &h.queued, f.report.Prefill)
			if f.report.Decode > 0 {
				hand := f.report.Decode.Seconds() - f.stepAt(at)
				pool.Transfers().Learn(h.Endpoint(), f.ep, h.Moves, max(hand, 0), 1)
			}
		}
		return
	}
	if f.request.Stream && f.learns.helper != nil {
		rest := f.predicted.Base - h.Endpoint().Cost().Base
		pool.LearnPrefill(h.Endpoint(), &h.queued, max(at.Sub(f.queued.At)-seconds(rest), 0))
	}
}

// stepAt returns the length of a step at the endpoint that serves.
func (f *flight) stepAt(at time.Time) float64 {
	var l endpoint.Load
	f.ep.AddLoad(&l, at.UnixNano())
	return f.ep.Cost().StepOf(float64(max(l.Requests-l.Waiting, 1)), float64(l.Context))
}
