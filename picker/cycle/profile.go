package cycle

import (
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Filter excludes candidates: it sets keep[k] to false for each c.At(k) that must not be chosen.
// keep is all true on entry. If no candidate is left, the request fails, so soft filters keep all
// instead.
type Filter interface {
	Filter(c *Cycle, keep []bool)
}

// KeepAllIfNone makes a filter soft: it keeps all candidates if none is left.
func KeepAllIfNone(keep []bool) {
	if !slices.Contains(keep, true) {
		for k := range keep {
			keep[k] = true
		}
	}
}

// FilterAmong applies a filter to the candidates with keep, as if the others had been dropped before.
func (c *Cycle) FilterAmong(f Filter, keep []bool) {
	outer := c.live
	inner := make([]int32, 0, len(outer))
	for k, i := range outer {
		if keep[k] {
			inner = append(inner, i)
		}
	}
	if len(inner) == 0 {
		return
	}
	kept := make([]bool, len(inner))
	for k := range kept {
		kept[k] = true
	}
	c.live = inner
	f.Filter(c, kept)
	c.live = outer
	n := 0
	for k := range keep {
		if keep[k] {
			keep[k] = kept[n]
			n++
		}
	}
}

// Scorer sets scores[k] for every candidate c.At(k); higher is better. Scores that share a profile
// with others must be in [0, 1]. NaN counts as the worst.
type Scorer interface {
	Score(c *Cycle, scores []float64)
}

// Picker appends the positions k of the candidates to use to order, best first: the first one
// serves, the others are fallbacks. totals[k] is the weighted sum of the scores of c.At(k) and
// never NaN. Pick is called with at least one candidate.
type Picker interface {
	Pick(c *Cycle, totals []float64, order []int32) []int32
}

// Completer is a scorer that leaves out predictions of candidates that are not picked.
type Completer interface {
	// Complete sets the prediction of remaining candidate k, if the last call of Score did not.
	Complete(c *Cycle, k int)
}

// TopPicker is a Picker for which the best totals alone decide.
type TopPicker interface {
	Picker
	// Top returns how many of them the picker needs, at least 1.
	Top() int
}

// Observer is a plugin that is notified of the result after the decision, before the request is
// sent.
type Observer interface {
	// Chosen is called on the request's goroutine. ep is the first choice of the plugin's profile.
	Chosen(c *Cycle, ep *endpoint.Endpoint)
}

// Profile ranks candidates by filters in order, a weighted sum of scorers, and a picker. It is
// immutable and safe for concurrent use.
type Profile struct {
	Name    string
	Filters []ProfileFilter
	Scorers []ProfileScorer
	Picker  Picker
}

// ProfileFilter is a filter with its configured name.
type ProfileFilter struct {
	Name string
	Filter
}

// ProfileScorer is a scorer with its configured name and weight.
type ProfileScorer struct {
	Name   string
	Weight float64
	Scorer
}

// Ranking is the result of one profile for one request.
type Ranking struct {
	Profile *Profile
	Live    []int32   // candidates that passed the filters, as positions among all
	Raw     []float64 // scores: one row of len(Live) for each scorer
	Total   []float64 // weighted sums, aligned with Live
	Order   []int32   // picked candidates as positions among all, best first; empty: none

	verdicts []uint8 // by position among all: 0 passed, f+1 dropped by filter f
	picked   []int32
}

// VerdictUnable is the verdict on candidates that do not serve the profile's phase.
const VerdictUnable = math.MaxUint8

// VerdictRemote is the verdict on endpoints of remote clusters, which no profile sees.
const VerdictRemote = VerdictUnable - 1

// Verdict returns the filters' result for candidate i: 0 if it passed, f+1 if filter f excluded it,
// or VerdictUnable or VerdictRemote.
func (r *Ranking) Verdict(i int32) uint8 {
	if int(i) >= len(r.verdicts) { // a remote endpoint, added later
		return VerdictRemote
	}
	return r.verdicts[i]
}

// Best returns the position of the first choice among all candidates, or -1.
func (r *Ranking) Best() int32 {
	if len(r.Order) == 0 {
		return -1
	}
	return r.Order[0]
}

// Run ranks the candidates of c. The result belongs to the cycle. All runs in one cycle see the
// same candidates, loads and matches.
func (p *Profile) Run(c *Cycle) *Ranking { return p.RunAmong(c, nil) }

// RunAmong is Run for the candidates for which able is true; nil means all.
func (p *Profile) RunAmong(c *Cycle, able func(*View) bool) *Ranking {
	outer := c.trace
	c.trace = outer.StartNamed(tracing.SpanProfile, tracing.Profile, p.Name)
	r := p.rank(c, able)
	c.trace.SetInt(tracing.Kept, len(r.Live))
	c.trace.End()
	c.trace = outer
	return r
}

func (p *Profile) rank(c *Cycle, able func(*View) bool) *Ranking {
	r := c.nextRanking(p)
	c.showAll()
	if able != nil {
		c.showAble(r, able)
	}
	for f := range p.Filters {
		if len(c.live) == 0 {
			break
		}
		p.filter(c, r, f)
	}
	n := len(c.live)
	r.Live = append(r.Live[:0], c.live...)
	r.Raw = resize(r.Raw, n*len(p.Scorers))
	r.Total = resize(r.Total, n)
	clear(r.Total)
	if n == 0 {
		return r
	}
	c.top = p.top()
	for s := range p.Scorers {
		row := r.Raw[s*n : (s+1)*n]
		clear(row)
		p.score(c, s, row)
		w := p.Scorers[s].Weight
		for k, v := range row {
			r.Total[k] += w * v
		}
	}
	for k, v := range r.Total {
		if v != v {
			r.Total[k] = math.Inf(-1)
		}
	}
	span := c.trace.Start(tracing.SpanPicker)
	r.picked = p.Picker.Pick(c, r.Total, r.picked[:0])
	span.End()
	for _, k := range r.picked {
		r.Order = append(r.Order, r.Live[k])
	}
	if c.top > 0 {
		p.complete(c, r)
	}
	return r
}

// top returns how many of the best scores a single scorer has to rank, 0 for all.
func (p *Profile) top() int {
	if picker, ok := p.Picker.(TopPicker); ok && len(p.Scorers) == 1 && p.Scorers[0].Weight > 0 {
		return picker.Top()
	}
	return 0
}

// complete adds the predictions of the picked candidates.
func (p *Profile) complete(c *Cycle, r *Ranking) {
	if s, ok := p.Scorers[0].Scorer.(Completer); ok {
		for _, k := range r.picked {
			s.Complete(c, int(k))
		}
	}
}

// score runs scorer s. The prefix match that the first scorer may need is part of its span.
func (p *Profile) score(c *Cycle, s int, row []float64) {
	outer := c.trace
	c.trace = outer.StartNamed(tracing.SpanScorer, tracing.Plugin, p.Scorers[s].Name)
	p.Scorers[s].Score(c, row)
	c.trace.End()
	c.trace = outer
}

func (p *Profile) filter(c *Cycle, r *Ranking, f int) {
	c.keep = resize(c.keep, len(c.live))
	for k := range c.keep {
		c.keep[k] = true
	}
	outer := c.trace
	c.trace = outer.StartNamed(tracing.SpanFilter, tracing.Plugin, p.Filters[f].Name)
	p.Filters[f].Filter.Filter(c, c.keep)
	kept := c.live[:0]
	for k, i := range c.live {
		if c.keep[k] {
			kept = append(kept, i)
		} else {
			r.verdicts[i] = uint8(min(f+1, VerdictRemote-1))
		}
	}
	c.live = kept
	c.trace.SetInt(tracing.Kept, len(kept))
	c.trace.End()
	c.trace = outer
}

// RunServing is Run for candidates that serve whole requests or decode. It returns a *Error if the
// role labels alone exclude all.
func (p *Profile) RunServing(c *Cycle) (*Ranking, error) { return p.RunServingIf(c, nil) }

// RunServingIf is RunServing for the candidates for which usable is true; nil means all.
func (p *Profile) RunServingIf(c *Cycle, usable func(*View) bool) (*Ranking, error) {
	if usable == nil && c.seen&flagHelps == 0 && len(c.views) > 0 {
		return p.Run(c), nil
	}
	able := 0
	ranking := p.RunAmong(c, func(v *View) bool {
		if v.Role&endpoint.RoleDecode == 0 {
			return false
		}
		able++
		return usable == nil || usable(v)
	})
	if able == 0 {
		return nil, request.Errorf(request.ReasonNoEndpoints, "no endpoint answers requests: all are labelled for prefill or encoding alone")
	}
	return ranking, nil
}

// showAble removes the candidates that are not able.
func (c *Cycle) showAble(r *Ranking, able func(*View) bool) {
	kept := c.live[:0]
	for _, i := range c.live {
		if able(c.All(i)) {
			kept = append(kept, i)
		} else {
			r.verdicts[i] = VerdictUnable
		}
	}
	c.live = kept
}

func (c *Cycle) nextRanking(p *Profile) *Ranking {
	if c.ranked == len(c.rankings) {
		c.rankings = append(c.rankings, new(Ranking))
	}
	r := c.rankings[c.ranked]
	c.ranked++
	r.Profile, r.Order = p, r.Order[:0]
	r.verdicts = resize(r.verdicts, len(c.endpoints))
	clear(r.verdicts)
	return r
}

// observed notifies the profile's observers.
func (p *Profile) observed(c *Cycle, ep *endpoint.Endpoint) {
	for _, f := range p.Filters {
		if o, ok := f.Filter.(Observer); ok {
			o.Chosen(c, ep)
		}
	}
	for _, s := range p.Scorers {
		if o, ok := s.Scorer.(Observer); ok {
			o.Chosen(c, ep)
		}
	}
	if o, ok := p.Picker.(Observer); ok {
		o.Chosen(c, ep)
	}
}
