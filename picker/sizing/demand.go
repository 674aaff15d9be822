package sizing

import (
	"math"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Request is the work of one request at its endpoint, in tokens.
type Request struct {
	Input, New, Output int32
}

// Demand is the load of the endpoints of one base model.
type Demand struct {
	Rate      float64         // requests per second
	Requests  []Request       // a sample
	Ranks     []endpoint.Cost // learned constants of all ranks of the endpoints; required
	Endpoints int
	Memory    float64 // tokens of KV memory of a rank; 0: unknown
}

// Wanted returns the smallest number of endpoints of the present endpoints' mean speed that meets
// the target. If prefills alone exceed the target, it returns the number from which on waits hardly
// matter. It returns most if fewer do not suffice.
func (d *Demand) Wanted(t Target, most int) int {
	m := d.model()
	late := max(1-t.Part, m.late(t, math.Inf(1))+unmetShare*(1-t.Part))
	low, high := 0, 1
	for high < most && m.late(t, float64(high)) > late {
		low, high = high, min(2*high, most)
	}
	for high-low > 1 {
		middle := (low + high) / 2
		if m.late(t, float64(middle)) > late {
			low = middle
		} else {
			high = middle
		}
	}
	return int(math.Ceil(float64(high) * float64(d.Endpoints) / float64(len(d.Ranks))))
}

// unmetShare is the share of requests, relative to those that may be late, that waits may delay
// beyond a target that prefills alone exceed.
const unmetShare = .2

// model is the queueing model of a number of equal endpoints.
type model struct {
	*Demand
	cost           endpoint.Cost // of an endpoint of mean speed
	prefill        float64       // mean seconds of a prefill
	variation      float64       // squared coefficient of variation of the prefills
	output, tokens float64       // mean tokens of an answer, and of its context
	own            []float64     // seconds of prefill, by request
}

func (d *Demand) model() *model {
	m := &model{Demand: d, cost: meanSpeed(d.Ranks, d.Requests)}
	n := float64(len(d.Requests))
	square := 0.0
	for _, r := range d.Requests {
		own := m.cost.Base + m.cost.Prefill(endpoint.Work{Input: int(r.Input), New: int(r.New)})
		m.own = append(m.own, own)
		m.prefill, square = m.prefill+own/n, square+own*own/n
		m.output += float64(r.Output) / n
		m.tokens += (float64(r.Input) + float64(r.Output)/2) * float64(r.Output)
	}
	if sum := m.output * n; sum > 0 {
		m.tokens /= sum
	}
	m.variation = square/(m.prefill*m.prefill) - 1
	return m
}

// meanSpeed returns the constants of an endpoint whose speed is the mean of the endpoints' speeds, for
// the mean request of the sample.
func meanSpeed(costs []endpoint.Cost, sample []Request) endpoint.Cost {
	var work, pairs float64
	for _, r := range sample {
		w := endpoint.Work{Input: int(r.Input), New: int(r.New)}
		work, pairs = work+float64(w.New), pairs+w.Pairs()
	}
	n := float64(max(len(sample), 1))
	prefill := func(c *endpoint.Cost) float64 { return c.Base + (c.PerToken*work+c.PerPair*pairs)/n }
	step := func(c *endpoint.Cost) float64 { return c.Step + usualSequences*c.PerSeq }
	var out endpoint.Cost
	var prefills, steps float64 // mean speeds
	for i := range costs {
		prefills += 1 / prefill(&costs[i]) / float64(len(costs))
		steps += 1 / step(&costs[i]) / float64(len(costs))
	}
	for i := range costs {
		c := &costs[i]
		out.Base, out.PerToken, out.PerPair = out.Base+c.Base, out.PerToken+c.PerToken, out.PerPair+c.PerPair
		out.Step, out.PerSeq, out.PerContext = out.Step+c.Step, out.PerSeq+c.PerSeq, out.PerContext+c.PerContext
	}
	p, s := 1/(prefills*prefill(&out)), 1/(steps*step(&out))
	out.Base, out.PerToken, out.PerPair = p*out.Base, p*out.PerToken, p*out.PerPair
	out.Step, out.PerSeq, out.PerContext = s*out.Step, s*out.PerSeq, s*out.PerContext
	return out
}

// usualSequences is the number of sequences at which the steps of endpoints are compared.
const usualSequences = 16

// late returns the share of requests whose first token is later than the target with n endpoints.
//
// Prefills of all ranks form one queue with n servers, as the policy sends a request where it waits
// least. The wait has an exponential tail. Learned prefill times include the decode steps among them.
func (m *model) late(t Target, n float64) float64 {
	rate := m.Rate / n
	running := m.running(rate)
	if math.IsInf(running, 1) || m.Memory > 0 && running*m.tokens > mostMemory*m.Memory {
		return 1
	}
	busy := rate * m.prefill
	if busy >= mostBusy {
		return 1
	}
	waits := math.Pow(busy, math.Sqrt(2*(n+1))-1) // of M/M/n, by Sakasegawa
	tail := m.prefill * (1 + m.variation) / 2 / (n * (1 - busy))
	late := 0.0
	for _, own := range m.own {
		if left := t.Seconds - own; left <= 0 {
			late++
		} else if waits > 0 {
			late += waits * math.Exp(-left/tail)
		}
	}
	return late / float64(len(m.own))
}

const (
	mostBusy   = .95 // share of the time that prefills may take
	mostMemory = .95 // share of the KV memory that running requests may hold
)

// running returns the mean number of decoding requests of a rank at that rate, +Inf if they would
// accumulate. Learned steps include the prefills among them at the present number of ranks.
func (m *model) running(rate float64) float64 {
	alone := (1 - rate*m.prefill) / (1 - min(m.Rate/float64(len(m.Ranks))*m.prefill, mostBusy))
	if alone <= 0 {
		return math.Inf(1)
	}
	each := rate * m.output / alone
	if left := 1 - each*(m.cost.PerSeq+m.cost.PerContext*m.tokens); left > 0 {
		return each * m.cost.Step / left
	}
	return math.Inf(1)
}
