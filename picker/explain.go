package picker

import (
	"context"
	"math"
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func explainPrompt(r *request.Request) explanation.Prompt {
	switch {
	case len(r.Exact) > 0:
		return explanation.Prompt{Space: "text", Bytes: r.PromptBytes}
	case len(r.ChunkKeys) > 0:
		return explanation.Prompt{Space: "chunks", Bytes: r.ChunkBytes()}
	}
	return explanation.Prompt{Space: "none"}
}

// Explain returns the recorded decision for a request, the latest if there are several.
func (rs *Records) Explain(requestID string) (explanation.Explanation, bool) {
	for _, e := range rs.last(requestID, 1) {
		return e, true
	}
	return explanation.Explanation{}, false
}

// Numbered returns the recorded decision with that number.
func (rs *Records) Numbered(number uint64) (explanation.Explanation, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rec := rs.at(number); rec != nil {
		return rec.explain(), true
	}
	return explanation.Explanation{}, false
}

// Next returns the number of the next decision. Numbers begin at 1.
func (rs *Records) Next() uint64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.next
}

// Last returns up to n recorded decisions, latest first.
func (rs *Records) Last(n int) []explanation.Explanation { return rs.last("", n) }

func (rs *Records) last(id string, n int) []explanation.Explanation {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var out []explanation.Explanation
	shown := budget.PrintableName(id) // also accept the id as displayed
	for k := rs.next; k > rs.first && len(out) < n; k-- {
		rec := rs.at(k - 1)
		if id == "" || string(rec.id) == shown || string(rec.id) == id {
			out = append(out, rec.explain())
		}
	}
	return out
}

// explainCycle returns the decision of a cycle after its handler ran, in the form of Records and
// with every candidate. It is for dry runs.
func (s *Scheduler) explainCycle(c *cycle.Cycle) explanation.Explanation {
	var rec record
	p := cycle.Prediction{}
	if c.Best() >= 0 {
		p = c.Expected()
	}
	rec.fill(c, p)
	return rec.explain()
}

// Explain decides about r without dispatching it: nothing is tracked, recorded or remembered.
func (s *Scheduler) Explain(ctx context.Context, r *request.Request) (explanation.Explanation, error) {
	res := s.resolve(r, s.rules.Load(), s.opts.Seed)
	p := s.prepare(ctx, cleared{admitted: admitted{res}}, s.opts.Now())
	defer s.free(p)
	err := s.rank(p)
	return s.explainCycle(p.cycle), err
}

func (rec *record) explain() explanation.Explanation {
	e := explanation.Explanation{
		Number: rec.number, RequestID: string(rec.id), At: rec.at, Model: string(rec.model), Target: string(rec.target), InputTokens: rec.input,
		Priority: rec.priority, Prompt: rec.prompt, Predicted: explainTime(rec.predicted), Omitted: rec.total - len(rec.rows),
	}
	for k, i := range rec.plan {
		if k == 0 {
			e.Choice = rec.address(i)
		} else {
			e.Fallbacks = append(e.Fallbacks, rec.address(i))
		}
	}
	for _, h := range rec.headers {
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[h.Name] = h.Value
	}
	e.Clusters = explainClusters(rec.clusters)
	e.Stages, e.Health, e.Refused = rec.explainStages(), rec.explainHealth(), rec.refused
	e.Avoided = rec.explainAvoided()
	if w := rec.warmUp; w.Endpoint != "" {
		e.WarmUp = &w
	}
	for k := range rec.rows {
		e.Candidates = append(e.Candidates, rec.rows[k].explain())
	}
	for k := range rec.rankings {
		e.Profiles = append(e.Profiles, rec.explainRanking(&rec.rankings[k]))
	}
	rec.explainMargin(&e)
	if o := rec.outcome; o.done {
		e.Outcome = &explanation.Outcome{
			Status: o.status, Served: o.served, TTFT: millis(o.ttft.Seconds()), Took: millis(o.took.Seconds()),
			Failed: o.failed, Against: causeName(o.cause),
			PromptTokens: o.usage.PromptTokens, CachedTokens: o.usage.CachedTokens, OutputTokens: o.usage.OutputTokens,
		}
	}
	return e
}

func (rec *record) address(i int32) string {
	for k := range rec.rows {
		if rec.rows[k].index == i {
			return rec.rows[k].view.Address
		}
	}
	return ""
}

// explainMargin finds the best candidate that was not chosen, in the profile that made the choice.
func (rec *record) explainMargin(e *explanation.Explanation) {
	for k := range rec.rankings {
		rr := &rec.rankings[k]
		if len(rr.order) == 0 || len(rec.plan) == 0 || rr.order[0] != rec.plan[0] {
			continue
		}
		chosen, second, name := math.Inf(-1), math.Inf(-1), ""
		for row := range rec.rows {
			switch {
			case rr.verdict[row] != 0:
			case rec.rows[row].index == rec.plan[0]:
				chosen = rr.total[row]
			case rr.total[row] > second || name == "":
				second, name = rr.total[row], rec.rows[row].view.Address
			}
		}
		if row := rec.secondChoice(rr); row >= 0 && rr.total[row] == second { // of equal totals, the one that would be tried next
			name = rec.rows[row].view.Address
		}
		if name != "" {
			e.RunnerUp, e.Margin = name, finite(chosen-second)
		}
		return
	}
}

// secondChoice returns the row of the ranking's second choice, or -1.
func (rec *record) secondChoice(rr *recordRanking) int {
	if len(rr.order) < 2 {
		return -1
	}
	return slices.IndexFunc(rec.rows, func(row recordRow) bool { return row.index == rr.order[1] })
}

func (rec *record) explainRanking(rr *recordRanking) explanation.Profile {
	p := explanation.Profile{Profile: rr.profile.Name}
	for _, i := range rr.order {
		p.Picked = append(p.Picked, rec.address(i))
	}
	scorers := rr.profile.Scorers
	for k := range rec.rows {
		if rr.verdict[k] == cycle.VerdictRemote {
			continue
		}
		row := explanation.Row{Endpoint: rec.rows[k].view.Address, Total: finite(rr.total[k])}
		if f := rr.verdict[k]; f == cycle.VerdictUnable || f > 0 && int(f) <= len(rr.profile.Filters) {
			row.Dropped = "role"
			if f != cycle.VerdictUnable {
				row.Dropped = rr.profile.Filters[f-1].Name
			}
			p.Rows = append(p.Rows, row)
			continue
		}
		for s := range scorers {
			raw := finite(rr.raw[k*len(scorers)+s])
			row.Scores = append(row.Scores, explanation.Score{Scorer: scorers[s].Name, Raw: raw, Weight: scorers[s].Weight})
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

func (row *recordRow) explain() explanation.Candidate {
	v := &row.view
	c := explanation.Candidate{
		Endpoint: v.Address, Name: v.Name, Matched: map[string]int{}, Held: finite(row.held), Blocks: int(row.run.Blocks),
		Load: explanation.Load{
			Requests: v.Load.Requests, Waiting: v.Load.Waiting, PrefillTokens: v.Load.Prefill, Tokens: v.Load.Tokens,
			Rate: v.Load.Rate, Pairs: v.Load.Pairs, Context: v.Load.Context, Busy: v.Load.Busy, GaugeAge: -1,
		},
	}
	if v.Sampled {
		c.Load.GaugeAge, c.Load.Values = millis(v.Age.Seconds()), v.Values
		if v.Ranks > 1 {
			c.Load.Ranks = v.Ranks
		}
	}
	for tier, n := range row.run.Tokens {
		if n > 0 {
			c.Matched[block.Tier(tier).String()] = int(n)
		}
	}
	if row.pred != (cycle.Prediction{}) { // zero if no scorer predicted it
		t := explainTime(row.pred)
		c.Predicted = &t
	}
	return c
}

func explainTime(p cycle.Prediction) explanation.Time {
	return explanation.Time{
		TTFT: millis(p.TTFT()), Wait: millis(p.Wait), Own: millis(p.Own), Base: millis(p.Base), Fetch: millis(p.Fetch), Load: millis(p.Load), Others: millis(p.Others), Zone: millis(p.Zone),
	}
}

func millis(s float64) float64 { return finite(math.Round(s*1e6) / 1e3) }

// finite converts v to a number that JSON can represent.
func finite(v float64) float64 {
	switch {
	case v != v, v == 0: // NaN or minus zero
		return 0
	case math.IsInf(v, 0):
		return math.Copysign(math.MaxFloat64, v)
	default:
		return v
	}
}

func (rec *record) explainStages() []explanation.Stage {
	var out []explanation.Stage
	for _, s := range rec.stages {
		e := explanation.Stage{Stage: s.Kind.String(), Outcome: s.Outcome.String(), Missing: s.Missing, Revision: s.Revision, Whole: millis(s.Whole), Split: millis(s.Split)}
		if s.Chosen >= 0 {
			e.Endpoint = rec.address(s.Chosen)
		}
		out = append(out, e)
	}
	return out
}
