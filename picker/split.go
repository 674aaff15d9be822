package picker

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// split reports whether another endpoint computes the prompt.
func (f *flight) split() bool { return f.leader() != nil }

// leader returns the endpoint whose prefill the first token waits for, nil if that is the serving
// endpoint.
func (f *flight) leader() *helper {
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

// readTransferReport handles the prefill legs reported by the decode engine's sidecar, once. Only endpoints
// that this request named to the sidecar count, each once.
func (f *flight) readTransferReport(e *request.Event) {
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
		if ep := f.prefillEndpoint(r.Target); ep != nil {
			ep.Tracker().CountRemote(e.At, health.None)
		}
	}
	if e.Status < 400 {
		f.learnPair(e)
	}
	if f.report.Faults[0].Fault != kvtransfer.NoFault && e.Status < 400 { // the failed leg delayed the answer
		f.learn = learnable{}
		f.evidence.watch.Moved(e.At, e.At.Add(f.progressLimit()))
	}
}

// SplitCounts counts decisions about prefill at another endpoint, and their results.
type SplitCounts struct {
	Split    uint64            `json:"split"`    // requests with a remote prefill
	Whole    uint64            `json:"whole"`    // requests that could have had one
	Computed map[string]uint64 `json:"computed"` // split requests by who computed the prompt
	GainedS  float64           `json:"gained_s"` // seconds to the first token, of requests that gained
	LostS    float64           `json:"lost_s"`   // the same of requests that lost
}

// SplitCounts returns the counts since the start of the replica.
func (s *Scheduler) SplitCounts() SplitCounts {
	m, stages := s.metrics, s.metrics.stages[cycle.StagePrefill]
	c := SplitCounts{Computed: map[string]uint64{}, GainedS: count(m.splits[0]), LostS: count(m.splits[1])}
	for outcome := range stages {
		if n := uint64(count(stages[outcome])); cycle.StageOutcome(outcome) == cycle.StageSplit {
			c.Split += n
		} else {
			c.Whole += n
		}
	}
	for by, name := range kvtransfer.Computers {
		c.Computed[name] = uint64(count(m.computed[by]))
	}
	return c
}

// count returns a counter's value.
func count(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m) // counters never fail
	return m.GetCounter().GetValue()
}

// pairFaults maps the causes in reports to faults of pairs. Proxies that report no cause had no KV
// transfer.
var pairFaults = map[kvtransfer.LocalCause]endpoint.PairFault{
	kvtransfer.LocalNothing: endpoint.PairNothing, kvtransfer.LocalTransfer: endpoint.PairTransfer, kvtransfer.LocalLate: endpoint.PairLate,
}

// pairReasons are the reasons in the log for pairs that are turned off.
var pairReasons = [endpoint.NumPairFaults]string{
	endpoint.PairNothing:  "the prefill endpoint returns no KV transfer; check its KV connector and role, and --kv-connector of the sidecar",
	endpoint.PairTransfer: "the decode endpoint fails with the KV transfers; check the side channel's address, and that both engines have one version, model and cache format",
	endpoint.PairLate:     "KV transfers are too old when decode reads them; check the load of decode, and --lease of the sidecar",
	endpoint.PairSlow:     "its first tokens are later than those of whole requests would be",
}

// predictUnsplit predicts the first token of a request that is about to be split, as if it were served
// whole. Others is the delay of the requests at the serving endpoint, with the weights of the
// predicted-pd-decider.
func (f *flight) predictUnsplit(c *cycle.Cycle) {
	const stall = .1 // weight of a decoding request's delay
	rank, work := c.First().Rank(), c.WorkAt(c.Plan().Order[0])
	own := rank.Cost.Prefill(work)
	f.unsplitTTFT = rank.Wait(c.Now, float64(work.New), c.Answer()) + own + rank.Cost.Base
	waiting := max(float64(rank.Load.Waiting), 0)
	f.unsplitDelay = own * (stall*max(float64(rank.Load.Requests)-waiting, 0) + waiting)
	f.comparable = f.request.Stream && rank.Cost.PrefillSeen >= enoughSamples
}

// learnPair records whether the pair of prefill and decode endpoint worked, and the time that it
// gained. It did not work if the prefill endpoint answered and the decode endpoint still computed the
// prompt. Faults of the prefill endpoint itself are evidence about its health.
func (f *flight) learnPair(e *request.Event) {
	r := &f.report
	if !r.Known || r.Target < 0 && r.Failed > 0 {
		return
	}
	from := f.prefillEndpoint(max(r.Target, 0))
	if from == nil {
		return
	}
	o := endpoint.SplitOutcome{Compared: f.comparable && r.Failed == 0 && f.serving == &f.own, Whole: f.unsplitTTFT, Spared: f.unsplitDelay}
	if r.Target < 0 {
		if o.Fault = pairFaults[r.Local]; o.Fault == endpoint.PairWorks {
			o.Fault = endpoint.PairNothing
		}
	}
	if f.request.Stream {
		o.Gained = f.unsplitTTFT - e.At.Sub(f.queued.At).Seconds()
	}
	f.s.metrics.splitTime(o.Gained)
	fault, changed := f.s.opts.Pool.Splits().Learn(from, f.ep, o)
	switch {
	case !changed:
	case fault == endpoint.PairWorks:
		f.s.opts.Log.Info("prefill pair works again", "prefill", from.Address, "decode", f.ep.Address)
	default:
		f.s.opts.Log.Warn("prefill pair turned off", "reason", pairReasons[fault], "prefill", from.Address, "decode", f.ep.Address)
	}
}

// helperFailed counts a failed prefill leg against its endpoint, unless the same prompt failed at
// others too.
func (f *flight) helperFailed(leg kvtransfer.Leg, now time.Time) {
	ep := f.prefillEndpoint(leg.Target)
	switch {
	case ep == nil:
		return
	case leg.Fault == kvtransfer.Busy:
		ep.Tracker().SetFull(now, fullPeriod)
		return
	}
	// The sidecar observes failing engines, and reports the ones that died. Other error responses
	// do not make the prompt suspect, because decode still answers it.
	prompts, prompt := f.s.prompts, f.evidence.prompt
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

// prefillEndpoint returns the endpoint at an index of the list of prefill endpoints, or nil.
func (f *flight) prefillEndpoint(index int) *endpoint.Endpoint {
	for _, h := range f.SetHeaders {
		if h.Name != request.HeaderPrefiller {
			continue
		}
		for address := range strings.SplitSeq(h.Value, ",") {
			if index == 0 {
				return f.s.opts.Pool.Snapshot().Lookup(address)
			}
			index--
		}
	}
	return nil
}

// learnSplit learns from the first token of a request served in parts. With a sidecar report,
// prefill and KV transfer times are known separately. Without one, the predicted transfer time is
// subtracted, and only the prefill is learned.
func (f *flight) learnSplit(at time.Time) {
	h, pool := f.leader(), f.s.opts.Pool
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
	if f.request.Stream && f.learn.helper != nil {
		rest := f.predicted.Base - h.Endpoint().Cost().Base
		pool.LearnPrefill(h.Endpoint(), &h.queued, max(at.Sub(f.queued.At)-seconds(rest), 0))
	}
}

// stepAt returns the length of a decode step at the serving endpoint.
func (f *flight) stepAt(at time.Time) float64 {
	l := f.s.opts.Pool.LoadTracker().RankLoad(f.ep, at)
	return f.ep.Cost().StepOf(float64(max(l.Requests-l.Waiting, 1)), float64(l.Context))
}
