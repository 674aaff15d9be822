package replay

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
)

// Outcome is how one request went.
type Outcome struct {
	Endpoint   int           // number of the engine; -1: refused
	First, End time.Duration // first token and end, from the start of the run
	Queued     time.Duration // how long it waited at the replica
	Cached     int           // prompt tokens found in the cache
	Preempted  int
	Remote     bool   // another engine computed the prompt
	Crossed    bool   // it left the zone of its replica
	Fetched    int    // prompt tokens whose blocks were fetched from another engine's cache
	Error      string // not answered; the rest is zero
}

// Wanted is the number of engines that the replicas' metrics ask for at a time.
type Wanted struct {
	At       time.Duration
	Replicas []int
}

// Summary are the figures of one quantity, in seconds.
type Summary struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// Result is the outcome of a run. Figures cover the requests that arrived after the warm-up.
type Result struct {
	Requests int `json:"requests"`
	Errors   int `json:"errors"` // refused or too long
	// Reasons counts errors by message.
	Reasons    map[string]int `json:"errors_by_reason,omitempty"`
	TTFT       Summary        `json:"ttft_s"`
	TPOT       Summary        `json:"tpot_s"`
	E2E        Summary        `json:"e2e_s"`
	Queue      Summary        `json:"queue_s"`        // how long answered requests waited at the picker
	HitRatio   float64        `json:"hit_ratio"`      // cached prompt tokens / prompt tokens
	Imbalance  float64        `json:"imbalance"`      // busiest engine's busy time / mean
	Busy       float64        `json:"busy"`           // mean share of the run in which an engine computes
	Prefill    float64        `json:"prefill"`        // mean share of the run that prefills alone would take
	Throughput float64        `json:"requests_per_s"` // answered / time from first arrival to last end
	Tokens     float64        `json:"tokens_per_s"`   // generated
	Completed  float64        `json:"completed"`      // answers that ended by the time of the last arrival / arrivals
	// Wanted holds the number of engines that each replica's metric asks for, every ten seconds; 0:
	// unknown.
	Wanted    []Wanted `json:"-"`
	Preempted int      `json:"preempted"`
	Remote    float64  `json:"remote,omitempty"`  // share of prompts computed by a separate prefill engine
	Fetched   float64  `json:"fetched,omitempty"` // prompt tokens that were fetched from other engines / prompt tokens
	WarmUps   int      `json:"warm_ups,omitempty"`
	Warmed    float64  `json:"warmed,omitempty"` // prompt tokens that warm-ups computed / prompt tokens
	// Crossed is the share of requests that left the zone of their replica.
	Crossed float64 `json:"crossed,omitempty"`
	// Goodput is the share of requests with a first token within 3 s and 100 ms
	// per token after it.
	Goodput float64 `json:"goodput"`
	// Blast is the share of the requests in flight at the fullest engine, which its failure would
	// abort. Mean over the run, weighted by requests in flight.
	Blast float64 `json:"blast_radius"`

	// Tenants are the results by tenant and priority, highest priority first, then by requests. It
	// is set if requests wait at the picker, or if the trace has tenants.
	Tenants []Tenant `json:"tenants,omitempty"`

	// Programs is the time from the first arrival of an agent run to its last answer, for runs that
	// started after the warm-up.
	Programs *Summary `json:"programs_s,omitempty"`

	Sizes []Size `json:"sizes"` // by size of prompt, the smallest first

	// Flight is the number of requests at each engine over the run, including the warm-up. It is
	// empty for fleets of more than 64 engines.
	Flight []Moment `json:"flight,omitempty"`

	Outcomes []Outcome `json:"-"` // of all requests, in the trace's order
}

func (s *simulation) result() *Result {
	out := &Result{Outcomes: s.outcomes, Wanted: s.wanted}
	var ttft, tpot, e2e, queued []float64
	var input, cached, fetched, generated, inTime int
	var from, to time.Duration = never, 0
	remote, crossed := 0, 0
	good := 0
	for i := range s.outcomes {
		r, o := &s.Trace.Requests[i], &s.outcomes[i]
		if o.Error == "" && o.End >= s.Warmup && o.End <= s.Trace.Length {
			inTime++
		}
		if r.At < s.Warmup {
			continue
		}
		out.Requests++
		if o.Error != "" {
			out.refuse(o.Error)
			continue
		}
		from, to = min(from, r.At), max(to, o.End)
		ttft = append(ttft, (o.First - r.At).Seconds())
		e2e = append(e2e, (o.End - r.At).Seconds())
		queued = append(queued, o.Queued.Seconds())
		if r.Output > 1 {
			tpot = append(tpot, (o.End-o.First).Seconds()/float64(r.Output-1))
		}
		if o.First-r.At <= goodFirst && o.End-o.First <= goodToken*time.Duration(max(r.Output-1, 0)) {
			good++
		}
		input, cached, fetched, generated = input+r.Input, cached+o.Cached, fetched+o.Fetched, generated+r.Output
		out.Preempted += o.Preempted
		if o.Remote {
			remote++
		}
		if o.Crossed {
			crossed++
		}
	}
	out.Crossed = ratio(float64(crossed), float64(out.Requests))
	out.TTFT, out.TPOT, out.E2E, out.Queue = summarise(ttft), summarise(tpot), summarise(e2e), summarise(queued)
	out.Tenants, out.Sizes, out.Programs = s.tenants(), s.bySize(), s.programs()
	if s.Endpoints <= mostEngines {
		out.Flight = s.timeline.moments(s.Trace.Length)
	}
	out.Remote = ratio(float64(remote), float64(out.Requests))
	out.WarmUps, out.Warmed = s.warmUps, ratio(float64(s.warmed), float64(input))
	out.Fetched = ratio(float64(fetched), float64(input))
	out.HitRatio = ratio(float64(cached), float64(input))
	if len(ttft) > 0 {
		span := (to - from).Seconds()
		out.Throughput, out.Tokens = ratio(float64(len(ttft)), span), ratio(float64(generated), span)
	}
	out.Completed = ratio(float64(inTime), float64(out.Requests))
	out.Imbalance = s.imbalance()
	out.Busy, out.Prefill = s.usage()
	out.Goodput = ratio(float64(good), float64(out.Requests))
	out.Blast = ratio(s.fullest, s.inFlight)
	return out
}

// Limits of requests that count in Result.Goodput.
const (
	goodFirst = 3 * time.Second
	goodToken = 100 * time.Millisecond
)

// lookAtFlight samples the requests in flight at an arrival, in total and at the fullest engine.
func (s *simulation) lookAtFlight(at time.Duration) {
	if s.Endpoints <= mostEngines {
		s.timeline.look(at, s.Trace.Length, s.stations)
	}
	if at < s.Warmup {
		return
	}
	all, most := 0, 0
	for i := range s.stations {
		n := s.stations[i].inFlight()
		all, most = all+n, max(most, n)
	}
	s.inFlight, s.fullest = s.inFlight+float64(all), s.fullest+float64(most)
}

func (r *Result) refuse(reason string) {
	if r.Reasons == nil {
		r.Reasons = map[string]int{}
	}
	r.Errors++
	r.Reasons[reason]++
}

func (s *simulation) imbalance() float64 {
	var sum, most time.Duration
	for i := range s.stations {
		sum += s.stations[i].busy
		most = max(most, s.stations[i].busy)
	}
	return ratio(float64(most)*float64(len(s.stations)), float64(sum))
}

// usage returns the mean share of the run in which engines compute, and that prefills alone take.
func (s *simulation) usage() (busy, prefill float64) {
	end := s.Trace.Length
	for i := range s.outcomes {
		r, o := &s.Trace.Requests[i], &s.outcomes[i]
		if o.Error == "" {
			end = max(end, o.End)
			prefill += s.PrefillTime(o.Endpoint, r.Input-o.Cached-o.Fetched, o.Cached+o.Fetched).Seconds()
		}
	}
	for i := range s.stations {
		busy += s.stations[i].busy.Seconds()
	}
	all := end.Seconds() * float64(len(s.stations))
	return ratio(busy, all), ratio(prefill, all)
}

// PrefillTime returns the time in which the engine with that number computes tokens prompt tokens
// behind cached ones, if it does nothing else.
func (c *Case) PrefillTime(number, tokens, cached int) time.Duration {
	model, slow := c.Engine.Model, 1.0
	if number < len(c.Models) && c.Models[number] != (engine.Model{}) {
		model = c.Models[number]
	}
	if number < len(c.Slow) && c.Slow[number] > 0 {
		slow = c.Slow[number]
	}
	return time.Duration(slow * float64(model.Prefill(tokens, cached)))
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// summarise sorts v.
func summarise(v []float64) Summary {
	if len(v) == 0 {
		return Summary{}
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	slices.Sort(v)
	at := func(q float64) float64 { return v[min(int(q*float64(len(v))), len(v)-1)] }
	return Summary{Mean: sum / float64(len(v)), P50: at(.5), P90: at(.9), P99: at(.99)}
}
