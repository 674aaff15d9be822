package picker

import (
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// split reports whether another endpoint computes the prompt.
func (f *flight) split() bool { return f.leads() != nil }

// leads returns the endpoint whose prefill the first token waits for, nil if that is the serving
// endpoint.
func (f *flight) leads() *helper {
	for i := range f.helpers {
		if f.helpers[i].Leads {
			return &f.helpers[i]
		}
	}
	return nil
}

// faultCauses maps the faults of failed prefill legs to causes.
var faultCauses = map[kvtransfer.Fault]health.Cause{
	kvtransfer.Refused: health.Broken, kvtransfer.Broken: health.Broken, kvtransfer.Timeout: health.Late,
	kvtransfer.Failed: health.Failed, kvtransfer.Garbage: health.Failed, kvtransfer.Died: health.Broken,
}

// reported handles the prefill legs reported by the decode engine's sidecar, once. Only endpoints
// that this request named to the sidecar count, each once.
func (f *flight) reported(e *request.Event) {
	if f.report != (kvtransfer.Report{}) || e.Local || f.ep.IsRemote() {
		return
	}
	f.report = e.KVTransfer
	if f.split() && e.Status < 400 {
		f.s.metrics.computed[e.KVTransfer.By()].Inc()
	}
	if !f.split() || f.report == (kvtransfer.Report{}) {
		return
	}
	for _, leg := range f.report.Faults {
		if leg.Fault == kvtransfer.NoFault {
			break
		}
		f.helperFailed(leg, e.At)
	}
	if r := &f.report; r.Known && r.Target >= 0 && e.Status < 400 {
		if ep := f.named(r.Target); ep != nil {
			ep.Tracker().CountRemote(e.At, health.None)
		}
	}
	if e.Status < 400 {
		f.learnPair(e)
	}
	if f.report.Faults[0].Fault != kvtransfer.NoFault && e.Status < 400 { // the failed leg delayed the answer
		f.learns = lessons{}
		f.vitals.watch.Moved(e.At, e.At.Add(f.patient()))
	}
}

// learnPair records whether the pair of prefill and decode endpoint worked. It did not if the
// prefill endpoint answered and the decode endpoint still computed the prompt. Faults of the
// prefill endpoint itself are evidence about its health.
func (f *flight) learnPair(e *request.Event) {
	r := &f.report
	if !r.Known || r.Target < 0 && r.Failed > 0 {
		return
	}
	from := f.named(max(r.Target, 0))
	if from == nil {
		return
	}
	gained := 0.
	if f.request.Stream {
		gained = f.whole - e.At.Sub(f.queued.At).Seconds()
	}
	f.s.metrics.splitTime(gained)
	if splits := f.s.opts.Pool.Splits(); splits.Learn(from, f.ep, r.Target >= 0, gained) {
		if splits.Works(from, f.ep) {
			f.s.opts.Log.Info("prefill pair works again", "prefill", from.Address, "decode", f.ep.Address)
		} else {
			f.s.opts.Log.Warn("prefill pair is off: its prompts were computed by the decode engine; the sidecar's log has the reason", "prefill", from.Address, "decode", f.ep.Address)
		}
	}
}

// helperFailed counts a failed prefill leg against its endpoint, unless the same prompt failed at
// others too.
func (f *flight) helperFailed(leg kvtransfer.Leg, now time.Time) {
	ep := f.named(leg.Target)
	switch {
	case ep == nil:
		return
	case leg.Fault == kvtransfer.Busy:
		ep.Tracker().SetFull(now, fullFor)
		return
	}
	// The sidecar observes failing engines, and reports the ones that died. Other error responses
	// do not make the prompt suspect, because decode still answers it.
	prompts, prompt := f.s.prompts, f.vitals.prompt
	switch leg.Fault {
	case kvtransfer.Died:
		if prompts.Died(prompt, int(ep.ID), now); prompts.Killer(prompt, now) {
			return
		}
	case kvtransfer.Broken:
		if prompts.Failed(prompt, int(ep.ID), now) {
			return
		}
	case kvtransfer.Failed, kvtransfer.Garbage:
		if prompts.Suspected(prompt, now) {
			return
		}
	}
	ep.Tracker().CountRemote(now, faultCauses[leg.Fault])
}

// named returns the endpoint at an index of the list of prefill endpoints, or nil.
func (f *flight) named(place int) *endpoint.Endpoint {
	for _, h := range f.SetHeaders {
		if h.Name != request.HeaderPrefiller {
			continue
		}
		for address := range strings.SplitSeq(h.Value, ",") {
			if place == 0 {
				return f.s.opts.Pool.Snapshot().Lookup(address)
			}
			place--
		}
	}
	return nil
}

// learnSplit learns from the first token of a request served in parts. With a sidecar report,
// prefill and KV transfer times are known separately. Without one, the predicted transfer time is
// subtracted, and only the prefill is learned.
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

// stepAt returns the length of a decode step at the serving endpoint.
func (f *flight) stepAt(at time.Time) float64 {
	l := f.s.opts.Pool.LoadTracker().RankLoad(f.ep, at)
	return f.ep.Cost().StepOf(float64(max(l.Requests-l.Waiting, 1)), float64(l.Context))
}
