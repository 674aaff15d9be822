package pd

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/plugins"
)

// predictedParams are the parameters of the predicted-pd-decider. The weights have the same meaning
// as in the predicted-ttft-scorer.
type predictedParams struct {
	plugins.TransferParams
	OwnWeight     float64 `json:"ownWeight"`     // the work itself
	StallWeight   float64 `json:"stallWeight"`   // stall of each decoding request
	QueueWeight   float64 `json:"queueWeight"`   // delay of each waiting request
	ArrivalWeight float64 `json:"arrivalWeight"` // delay of requests expected to arrive during the prefill
	DecodeWeight  float64 `json:"decodeWeight"`  // one second of decoding, of the request itself and of others
	MemoryWeight  float64 `json:"memoryWeight"`  // delay of later requests by longer memory use
	ChunkTokens   int     `json:"chunkTokens"`   // tokens that an engine prefills per step
}

func predictedDefaults() predictedParams {
	return predictedParams{TransferParams: plugins.TransferDefaults(), OwnWeight: .5, StallWeight: .1, QueueWeight: 1, ArrivalWeight: .5, DecodeWeight: .1, MemoryWeight: 1, ChunkTokens: 8192}
}

// prices compares plans for one request by their cost in seconds:
//
//	whole(d)     = wait(d) + own(d) + chunks × base + harm(d, own) + stay(d) + memory(d, own)
//	pair(p, d)   = wait(p) + own(p) + chunks × base + harm(p, own)
//	             + remaining link(p) + transfer(p, d, tokens that d lacks) + delay(p, sending)
//	             + remaining wait(d) + step(d) + stay(d) + memory(d, 0)
//	             + (1 − success(p, d)) × whole(d)
//	harm(e, x)   = x × (OwnWeight + StallWeight × decoding(e) + QueueWeight × waiting(e)
//	             + ArrivalWeight × arrival rate(e) × (wait(e) + x/2) / (1 − busy(e)))
//	stay(d)      = DecodeWeight × answer × (step with the request in it + decoding × its addition to a step)
//	memory(d, x) = MemoryWeight × P(memory full) × hold × arrival rate × (wait for memory + hold/2)
//	delay(p, x)  = (x − own, if positive) × (QueueWeight × waiting(p) + ArrivalWeight × arrival rate(p) × (until x begins + x/2))
//	hold         = share of the request × (x + answer × step) + share in use × x
//
// A prefill at a decoding endpoint makes all its requests keep their memory for longer. If requests
// wait for memory, this costs more than the stall.
//
// success is the probability that p computes the prompt for d, learned from reports of earlier
// requests (endpoint.Splits). If it does not, d computes the prompt afterwards.
//
// own is the prefill of uncached tokens. endpoint.Cost gives the times of prefills and steps, and
// endpoint.Transfers the costs of transfers.
//
// Waits are computed as in the default policy (cycle.View.Wait). At the decode endpoint, the wait
// for memory behind all requests placed there is added (cycle.View.WaitOfRoom), because prompts
// still being computed at other endpoints are in no engine queue.
//
// Loads are read from the shared load tracker, by role. A remote prefill waits at the prefill
// endpoint, and counts as waiting at the decode endpoint once the engine reports it. An engine
// sends prompts one after the other, so link(p) is the total that it still has to send.
type prices struct {
	predictedParams
	model endpoint.TransferModel
}

func newPredicted(p predictedParams) (plugin.Plugin, error) {
	m, err := p.Model()
	j := &prices{p, m}
	errs := []error{err, plugin.Require(p.ChunkTokens > 0 && p.ChunkTokens <= 1<<20, "chunkTokens", "must be from 1 to 1048576")}
	for _, w := range []struct {
		name  string
		value float64
	}{{"ownWeight", p.OwnWeight}, {"stallWeight", p.StallWeight}, {"queueWeight", p.QueueWeight}, {"arrivalWeight", p.ArrivalWeight}, {"decodeWeight", p.DecodeWeight}, {"memoryWeight", p.MemoryWeight}} {
		errs = append(errs, plugin.Require(w.value >= 0, w.name, "must not be negative"))
	}
	return plugin.Plugin{Decider: j.decider()}, plugin.Faults(errs...)
}

func (j *prices) decider() plugin.Decider { return plugin.Decider{Split: j.split, Pair: j.pair} }

// split reports whether a prefill endpoint reduces the cost of a request for a given serving
// endpoint.
func (j *prices) split(c *cycle.Cycle, serving int32) bool {
	return j.pair(c, plugin.Among{Serve: []int32{serving}, Help: helpers(c), Whole: serving}).Helps > 0
}

// helpers returns the candidates labelled for prefill.
func helpers(c *cycle.Cycle) (list []int32) {
	for i := range int32(c.Candidates()) {
		if c.All(i).Role&endpoint.RolePrefill != 0 {
			list = append(list, i)
		}
	}
	return list
}

// offer is a prefill candidate with the part of its cost that is the same for every peer.
type offer struct {
	at      int32
	ep      *endpoint.Endpoint
	own     float64 // seconds of prefill
	seconds float64 // seconds until the prefill is done
	price   float64 // including the cost to others
}

var offers = sync.Pool{New: func() any { return new([]offer) }}

// pair implements plugin.Decider.Pair. It visits pairs in order of a lower bound of their cost, so
// that few are evaluated.
func (j *prices) pair(c *cycle.Cycle, among plugin.Among) plugin.Way {
	alone, price := j.alone(c, among)
	way := plugin.Way{Serve: alone, Whole: price, Split: math.Inf(1)}
	pooled := offers.Get().(*[]offer)
	list := (*pooled)[:0]
	for _, p := range among.Help {
		list = append(list, j.offer(c, p))
	}
	slices.SortFunc(list, cheaper)
	for _, i := range among.Serve {
		d := j.demand(c, i)
		for k := range list {
			if list[k].price+d.price >= way.Split {
				break
			}
			if !usable(c, list[k].at, i) {
				continue
			}
			seconds, others := j.kvTransfer(c, &list[k], &d)
			others += j.risk(c, list[k].at, i)
			if price := list[k].price + d.price + seconds + others; price < way.Split && list[k].at != i {
				way.Serve, way.Split = i, price
			}
		}
	}
	if way.Split < way.Whole {
		j.order(c, list, &way)
	} else {
		way.Serve = alone
	}
	clear(list) // so that the pool keeps no endpoints alive
	*pooled = list
	offers.Put(pooled)
	return way
}

func cheaper(a, b offer) int {
	return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.at, b.at))
}

// order fills in the prefill endpoints for way.Serve, cheapest first, and the prediction.
func (j *prices) order(c *cycle.Cycle, list []offer, way *plugin.Way) {
	var price [len(way.Help)]float64
	d := j.demand(c, way.Serve)
	for k := range list {
		o := &list[k]
		if o.at == way.Serve || !usable(c, o.at, way.Serve) {
			continue
		}
		if way.Helps == len(price) && o.price >= price[way.Helps-1] {
			break
		}
		hand, others := j.kvTransfer(c, o, &d)
		others += j.risk(c, o.at, way.Serve)
		total, at := o.price+hand+others, way.Helps
		for at > 0 && total < price[at-1] {
			at--
		}
		if at == len(price) {
			continue
		}
		way.Helps = min(way.Helps+1, len(price))
		copy(price[at+1:way.Helps], price[at:])
		copy(way.Help[at+1:way.Helps], way.Help[at:])
		price[at], way.Help[at] = total, o.at
		if at == 0 {
			way.Predicted = cycle.Prediction{Wait: max(o.seconds-o.own, 0), Own: o.own, Base: hand + d.step, Others: o.price - o.seconds + others + d.price - d.step}
		}
	}
}

// alone returns the candidate that would serve the whole request, and its cost. This is the decode
// profile's best, unless another one is cheaper and the request would wait there for memory behind
// prompts that the profile does not see.
func (j *prices) alone(c *cycle.Cycle, among plugin.Among) (best int32, price float64) {
	best, price = among.Whole, j.whole(c, among.Whole)
	if j.room(c, best) == 0 {
		return best, price
	}
	for _, d := range among.Serve {
		if x := j.whole(c, d); x < price {
			best, price = d, x
		}
	}
	return best, price
}

// whole returns the cost of candidate d serving the request alone, +Inf if it cannot.
func (j *prices) whole(c *cycle.Cycle, d int32) float64 {
	if consumes(c.All(d)) {
		return math.Inf(1)
	}
	room := j.room(c, d)
	o := j.behind(c, d, room)
	return o.price + j.stay(c, d) + j.memory(c, d, o.own, room)
}

// offer returns the cost of a remote prefill at a candidate.
func (j *prices) offer(c *cycle.Cycle, i int32) offer { return j.behind(c, i, 0) }

// behind returns the cost of a remote prefill at a candidate that starts it after least seconds or
// later.
func (j *prices) behind(c *cycle.Cycle, i int32, least float64) offer {
	v, w := c.All(i).Rank(), c.WorkAt(i)
	own := v.Cost.Prefill(w)
	chunks := float64((w.New + j.ChunkTokens - 1) / j.ChunkTokens)
	wait := max(v.Wait(c.Now, float64(w.New), c.Answer()), least)
	seconds := wait + own + chunks*v.Cost.Base
	arrivals := j.ArrivalWeight * v.Load.Rate * (wait + own/2) / (1 - min(max(v.Load.Busy, 0), mostBusy))
	harm := own * (j.OwnWeight + j.StallWeight*decoding(v) + j.QueueWeight*waiting(v) + arrivals)
	return offer{i, v.Endpoint, own, seconds, seconds + harm}
}

// demand is a decode candidate with the part of its cost that is the same for every peer.
type demand struct {
	ep    *endpoint.Endpoint
	lacks int     // tokens to transfer
	wait  float64 // seconds until there is memory for the request
	step  float64
	price float64
	level [endpoint.NumLevels]float64 // seconds per transfer
	token [endpoint.NumLevels]float64 // seconds per additional token
}

func (j *prices) demand(c *cycle.Cycle, i int32) demand {
	v := c.All(i).Rank()
	d := demand{ep: v.Endpoint, lacks: missing(c, i), step: v.Cost.StepOf(decoding(v)+1, float64(v.Load.Context))}
	room := j.room(c, i)
	d.wait = max(v.Wait(c.Now, float64(c.Request.InputTokens), c.Answer()), room)
	d.price = d.step + j.stay(c, i) + j.memory(c, i, 0, room)
	for level := range d.level {
		d.level[level] = c.Transfers().LevelSeconds(&j.model, endpoint.Level(level), d.lacks)
		d.token[level] = c.Transfers().PerToken(&j.model, endpoint.Level(level))
	}
	return d
}

// kvTransfer returns the seconds from the end of a prefill until d has the missing blocks, and the
// cost to other requests waiting for the same sender.
func (j *prices) kvTransfer(c *cycle.Cycle, o *offer, d *demand) (seconds, others float64) {
	level, pair, v := endpoint.Shared(o.ep, d.ep), c.Transfers().PairFactor(o.ep, d.ep), c.All(o.at).Rank()
	begins := max(o.seconds, float64(max(v.Load.Moving, 0))*d.token[level]*pair)
	sending := float64(d.lacks) * d.token[level] * pair
	others = max(sending-o.own, 0) * (j.QueueWeight*waiting(v) + j.ArrivalWeight*v.Load.Rate*(begins+sending/2))
	return max(d.wait, begins) - o.seconds + d.level[level]*pair, others
}

// risk returns the expected cost of computing the prompt at d after all.
func (j *prices) risk(c *cycle.Cycle, p, d int32) float64 {
	success := c.Success(c.All(p).Endpoint, c.All(d).Endpoint)
	if success == 1 || consumes(c.All(d)) {
		return 0
	}
	return (1 - success) * j.whole(c, d)
}

// stay returns the cost of decoding at d.
func (j *prices) stay(c *cycle.Cycle, d int32) float64 {
	v, input := c.All(d).Rank(), float64(c.Request.InputTokens)
	running := decoding(v)
	step := v.Cost.StepOf(running+1, float64(v.Load.Context)+input)
	return j.DecodeWeight * c.Answer() * (step + running*(v.Cost.PerSeq+v.Cost.PerContext*input))
}

// mostBusy bounds the prefill share.
const mostBusy = .9

// waiting returns the number of requests without a first token at an endpoint. The load tracker
// does not count requests with a remote prefill; the engine's gauge does.
func waiting(v *cycle.View) float64 {
	n := float64(max(v.Load.Waiting, 0))
	if v.Fresh() {
		n = max(n, float64(v.Waiting))
	}
	return n
}

func decoding(v *cycle.View) float64 { return float64(max(v.Load.Requests-v.Load.Waiting, 0)) }

// usable reports whether a prefill candidate may compute prompts for a decode candidate. An engine
// that cannot compute them itself uses any of its revision.
func usable(c *cycle.Cycle, from, to int32) bool {
	if !paired(c, from, to) {
		return false
	}
	return c.Works(c.All(from).Endpoint, c.All(to).Endpoint) || consumes(c.All(to))
}

// consumes reports whether an engine serves only requests with a remote prefill. SGLang in the
// decode role rejects others.
func consumes(v *cycle.View) bool {
	if v.Role&endpoint.RolePrefill != 0 {
		return false
	}
	if v.Engine != endpoint.EngineSGLang && v.Gauges().Engine != endpoint.EngineSGLang {
		return false
	}
	role, _ := v.Label(endpoint.LabelRole)
	return role == "decode"
}
