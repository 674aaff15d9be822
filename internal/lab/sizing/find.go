package sizing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	demand "github.com/grapevine-epp/grapevine/picker/sizing"
)

// Question is a search for a number of engines.
type Question struct {
	Targets []Target
	Source  sweep.Source
	Rate    float64 // requests per second over all engines
	Unit    replay.Fleet
	Seeds   []uint64
	Base    replay.Case // policy, engines, replicas
	Warmup  float64     // share of the load's length that is not measured
	Most    int         // maximum number of units
	Workers int
	// Tried, if not nil, is called after each size.
	Tried func(Size)
}

// Size is the result of one number of engines. Times are in seconds, as means over the seeds.
type Size struct {
	Engines    int            `json:"engines"`
	TTFT       replay.Summary `json:"ttft_s"` // of answered requests, like the next two
	TPOT       replay.Summary `json:"tpot_s"`
	E2E        replay.Summary `json:"e2e_s"`
	Busy       float64        `json:"busy"`    // share of the time in which engines compute
	Prefill    float64        `json:"prefill"` // share of the time that prefills alone need
	HitRatio   float64        `json:"hit_ratio"`
	Requests   int            `json:"requests"`
	Refused    int            `json:"refused"`
	TooLong    int            `json:"too_long"` // prompts that no engine has memory for
	Values     []Value        `json:"targets"`
	Meets      bool           `json:"meets"`
	Seeds      int            `json:"seeds"`       // 1 if the first one missed a target by far
	MeetsSeeds int            `json:"meets_seeds"` // seeds of which all targets are met
	Grows      bool           `json:"queue_grows"` // queues grow until the end of the load

	// Wanted is the mean number of engines that the metric of a pool of this size asks for, 0 if
	// unknown. It is known if the first target is for the first token.
	Wanted float64 `json:"wanted"`

	units  int
	prompt float64 // seconds that the target's percentile of uncached prompts takes without a wait
}

// Value is the result for one target.
type Value struct {
	Target string  `json:"target"`
	Value  Seconds `json:"value_s"`
	// Low and High include the results of all seeds and the standard error of each one, from ten
	// parts of the time.
	Low    Seconds `json:"low_s"`
	High   Seconds `json:"high_s"`
	Beyond int     `json:"samples_beyond"` // samples beyond the percentile, of one seed
}

// Seconds is a time. In JSON, an infinite one is null.
type Seconds float64

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(s), 0) || math.IsNaN(float64(s)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(s))
}

// Answer is the result of a search.
type Answer struct {
	Load     string   `json:"load"`
	Rate     float64  `json:"requests_per_s"`
	Sizes    []Size   `json:"sizes"`             // in ascending order
	Engines  int      `json:"engines,omitempty"` // 0: no size meets the targets
	Safe     int      `json:"safe,omitempty"`    // the smallest size that meets them by its whole range
	Notes    []string `json:"notes,omitempty"`
	Targets  []string `json:"targets"`
	Seeds    int      `json:"seeds"`
	question *Question
}

// ErrShort is wrapped by the error of a load with too few requests for a target.
var ErrShort = errors.New("the load is too short")

// fewBeyond is the number of samples beyond a percentile below which an answer is called uncertain.
const fewBeyond = 10

type search struct {
	*Question
	ctx   context.Context
	sizes map[int]*Size // by units
}

// Find returns the smallest number of engines that meets all targets: the next size meets them too,
// and the one before does not.
func Find(ctx context.Context, q Question) (*Answer, error) {
	s := &search{Question: &q, ctx: ctx, sizes: map[int]*Size{}}
	units, err := s.find()
	if err != nil {
		return nil, err
	}
	a := &Answer{Load: q.Source.Name, Rate: q.Rate, Seeds: len(q.Seeds), question: &q}
	for _, t := range q.Targets {
		a.Targets = append(a.Targets, t.String())
	}
	if units > 0 {
		if err := s.safe(units, a); err != nil {
			return nil, err
		}
		a.Engines = s.sizes[units].Engines
	}
	for n := 1; n <= q.Most; n++ {
		if size := s.sizes[n]; size != nil {
			a.Sizes = append(a.Sizes, *size)
		}
	}
	a.notes(units, s.sizes)
	return a, nil
}

// find returns the smallest number of units that meets the targets, 0 if none does.
func (s *search) find() (int, error) {
	low, high := 0, 1
	for {
		size, err := s.try(high)
		if err != nil {
			return 0, err
		}
		if size.Meets {
			break
		}
		if s.hopeless(high) || high == s.Most {
			return 0, nil
		}
		low, high = high, min(2*high, s.Most)
	}
	for high-low > 1 {
		middle := (low + high) / 2
		size, err := s.try(middle)
		if err != nil {
			return 0, err
		}
		if size.Meets {
			high = middle
		} else {
			low = middle
		}
	}
	return s.confirm(high)
}

// confirm returns the first size from units on that meets the targets together with the next one.
// One more engine can make a result worse: the caches of sessions are then elsewhere.
func (s *search) confirm(units int) (int, error) {
	for ; units < s.Most; units++ {
		size, err := s.try(units)
		if err != nil {
			return 0, err
		}
		if !size.Meets {
			continue
		}
		next, err := s.try(units + 1)
		if err != nil {
			return 0, err
		}
		if next.Meets {
			break
		}
	}
	size, err := s.try(units)
	if err != nil || !size.Meets {
		return 0, err
	}
	return units, nil
}

// safe finds the smallest size from units on that meets the targets with its whole range, within a
// quarter more engines.
func (s *search) safe(units int, a *Answer) error {
	for n := units; n <= min(units+max(units/4, 2), s.Most); n++ {
		size, err := s.try(n)
		if err != nil {
			return err
		}
		if size.Meets && size.certain(s.Targets) {
			a.Safe = size.Engines
			return nil
		}
	}
	return nil
}

func (s *Size) certain(targets []Target) bool {
	for i := range targets {
		if float64(s.Values[i].High) > targets[i].Limit.Seconds() {
			return false
		}
	}
	return true
}

// hopeless reports whether twice the engines hardly improved any missed target, with little queued:
// no number of engines meets it.
func (s *search) hopeless(units int) bool {
	size, half := s.sizes[units], s.sizes[units/2]
	if half == nil || size.Grows || size.Prefill > .25 {
		return false
	}
	for i, t := range s.Targets {
		v, before := float64(size.Values[i].Value), float64(half.Values[i].Value)
		if v > t.Limit.Seconds() && v > .97*before {
			return true
		}
	}
	return false
}

// try returns the result of a number of units.
func (s *search) try(units int) (*Size, error) {
	if size := s.sizes[units]; size != nil {
		return size, nil
	}
	one, err := s.run(units, s.Seeds[0])
	if err != nil {
		return nil, err
	}
	runs := []*run{one}
	if !s.far(one) {
		others, err := s.runs(units, s.Seeds[1:])
		if err != nil {
			return nil, err
		}
		runs = append(runs, others...)
	}
	size := s.sum(units, runs)
	s.sizes[units] = size
	if s.Tried != nil {
		s.Tried(*size)
	}
	return size, nil
}

// farOff is the multiple of a limit beyond which one seed is enough to refuse a size.
const farOff = 4

// far reports whether the run misses a target by far.
func (s *search) far(one *run) bool {
	for i, t := range s.Targets {
		if quantile(one.samples[i], t.Part, nil) > farOff*t.Limit.Seconds() {
			return true
		}
	}
	return false
}

// runs plays several seeds.
func (s *search) runs(units int, seeds []uint64) ([]*run, error) {
	out, errs := make([]*run, len(seeds)), make([]error, len(seeds))
	slots := make(chan struct{}, max(s.Workers, 1))
	var wg sync.WaitGroup
	for i, seed := range seeds {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i], errs[i] = s.run(units, seed)
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// run is the result of one seed.
type run struct {
	result  *replay.Result
	samples [][]sample // by target
	prompt  float64
	wanted  float64 // mean of the metric, 0: unknown
}

// meanWanted returns the mean of the first replica's metric after the warm-up, 0 if it is unknown.
func meanWanted(r *replay.Result, warmup time.Duration) float64 {
	sum, n := 0, 0
	for _, w := range r.Wanted {
		if w.At >= warmup && w.Replicas[0] > 0 {
			sum, n = sum+w.Replicas[0], n+1
		}
	}
	return float64(sum) / float64(max(n, 1))
}

func (s *search) run(units int, seed uint64) (*run, error) {
	c := s.Base
	fleet := s.fleet(units)
	fleet.Apply(&c)
	c.Seed, c.Trace = seed, s.Source.Make(s.Rate, seed)
	c.Warmup = time.Duration(s.Warmup * float64(c.Trace.Length))
	if t := s.Targets[0]; t.Of == FirstToken {
		c.Target = &demand.Target{Part: t.Part, Seconds: t.Limit.Seconds()}
	}
	result, err := replay.Run(s.ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%d engines, seed %d: %w", c.Endpoints, seed, err)
	}
	out := &run{result: result, wanted: meanWanted(result, c.Warmup)}
	for _, t := range s.Targets {
		samples := t.samples(c.Trace, result, c.Warmup)
		if float64(len(samples))*(1-t.Part) < 1 {
			return nil, fmt.Errorf("%w: %s requires at least %.0f requests after the warm-up, and %s has %d: record for longer, choose a lower percentile, or lower --warmup",
				ErrShort, t, math.Ceil(1/(1-t.Part)-1e-9), s.Source.Name, len(samples))
		}
		out.samples = append(out.samples, samples)
	}
	out.prompt = s.prompt(&c, result)
	result.Outcomes = nil
	return out, nil
}

// prompt returns the seconds that the uncached part of a prompt takes at an idle engine, at the
// percentile of the first target.
func (s *search) prompt(c *replay.Case, r *replay.Result) float64 {
	var all []sample
	for i := range r.Outcomes {
		q, o := &c.Trace.Requests[i], &r.Outcomes[i]
		if q.At >= c.Warmup && o.Error == "" {
			all = append(all, sample{q.At, c.PrefillTime(o.Endpoint, q.Input-o.Cached, o.Cached).Seconds()})
		}
	}
	return quantile(all, s.Targets[0].Part, nil)
}

// fleet returns the unit that many times.
func (s *search) fleet(units int) replay.Fleet {
	f := replay.Fleet{Name: s.Unit.Name}
	for range units {
		f.Kinds = append(f.Kinds, s.Unit.Kinds...)
	}
	return f
}

func (s *search) sum(units int, runs []*run) *Size {
	out := &Size{Engines: units * len(s.Unit.Kinds), units: units}
	share := 1 / float64(len(runs))
	for _, t := range s.Targets {
		out.Values = append(out.Values, Value{Target: t.String(), Low: Seconds(math.Inf(1))})
	}
	for _, one := range runs {
		r := one.result
		addSummary(&out.TTFT, &r.TTFT, share)
		addSummary(&out.TPOT, &r.TPOT, share)
		addSummary(&out.E2E, &r.E2E, share)
		out.Busy, out.Prefill, out.HitRatio = out.Busy+share*r.Busy, out.Prefill+share*r.Prefill, out.HitRatio+share*r.HitRatio
		out.Requests += r.Requests
		out.TooLong += r.Reasons[engine.ErrTooLong.Error()]
		out.Refused += r.Errors - r.Reasons[engine.ErrTooLong.Error()]
		out.prompt += share * one.prompt
		out.Wanted += share * one.wanted
		meets := true
		for i, t := range s.Targets {
			v, samples := &out.Values[i], one.samples[i]
			value, off := quantile(samples, t.Part, nil), standardError(samples, t.Part)
			v.Value += Seconds(share * value)
			v.Low, v.High = min(v.Low, Seconds(max(value-off, 0))), max(v.High, Seconds(value+off))
			v.Beyond = int(float64(len(samples)) * (1 - t.Part))
			grows := t.grows(samples)
			out.Grows = out.Grows || grows
			meets = meets && value <= t.Limit.Seconds() && !grows
		}
		if meets {
			out.MeetsSeeds++
		}
	}
	out.Seeds, out.Meets = len(runs), out.MeetsSeeds == len(runs)
	return out
}

func addSummary(to, from *replay.Summary, share float64) {
	to.Mean += share * from.Mean
	to.P50 += share * from.P50
	to.P90 += share * from.P90
	to.P99 += share * from.P99
}
