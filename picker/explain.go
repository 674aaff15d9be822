package picker

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Explanation is one decision in full, for people and for JSON. It holds no
// prompt text. Times are in milliseconds.
type Explanation struct {
	RequestID   string               `json:"request_id"`
	At          time.Time            `json:"at"`
	Model       string               `json:"model"`
	Target      string               `json:"target,omitempty"`
	InputTokens int                  `json:"input_tokens"`
	Priority    int                  `json:"priority"`
	Prompt      ExplainedPrompt      `json:"prompt"`
	Choice      string               `json:"choice"`
	Fallbacks   []string             `json:"fallbacks,omitempty"`
	RunnerUp    string               `json:"runner_up,omitempty"`
	Margin      float64              `json:"margin"` // total of the choice minus that of the runner-up
	Headers     map[string]string    `json:"headers,omitempty"`
	Stages      []ExplainedStage     `json:"stages,omitempty"`
	Predicted   ExplainedTime        `json:"predicted"`
	Omitted     int                  `json:"omitted_candidates,omitempty"`
	Candidates  []ExplainedCandidate `json:"candidates"`
	Profiles    []ExplainedProfile   `json:"profiles"`
	Health      []ExplainedHealth    `json:"health,omitempty"`   // endpoints that were not healthy
	Clusters    []ExplainedCluster   `json:"clusters,omitempty"` // this one and others, where others were asked
	Refused     string               `json:"refused,omitempty"`  // why it was not placed
	Outcome     *ExplainedOutcome    `json:"outcome,omitempty"`
}

// ExplainedPrompt says how a prompt was matched.
type ExplainedPrompt struct {
	Space string `json:"space"` // text, chunks or none
	Bytes int    `json:"bytes"` // of the rendered prompt, or of the raw one for chunks
}

func explainPrompt(r *request.Request) ExplainedPrompt {
	switch {
	case len(r.Exact) > 0:
		return ExplainedPrompt{"text", r.PromptBytes}
	case len(r.ChunkKeys) > 0:
		return ExplainedPrompt{"chunks", r.ChunkBytes()}
	}
	return ExplainedPrompt{Space: "none"}
}

// ExplainedTime are the parts of a predicted time to first token, and what the
// request costs others.
type ExplainedTime struct {
	TTFT   float64 `json:"ttft_ms"`
	Wait   float64 `json:"wait_ms"`
	Own    float64 `json:"own_ms"`
	Base   float64 `json:"base_ms"`
	Others float64 `json:"others_ms"`
}

// ExplainedCandidate is what was known of one candidate.
type ExplainedCandidate struct {
	Endpoint  string         `json:"endpoint"`
	Name      string         `json:"name,omitempty"`
	Matched   map[string]int `json:"matched_tokens"`  // by tier
	Held      float64        `json:"weighted_tokens"` // what the tokens count for, by the weights of their tiers
	Blocks    int            `json:"matched_blocks"`
	Load      ExplainedLoad  `json:"load"`
	Predicted *ExplainedTime `json:"predicted,omitempty"`
}

// ExplainedLoad is the load of one candidate: the book of all replicas, and
// the engine's gauges with their age.
type ExplainedLoad struct {
	Requests      int64   `json:"requests"`
	Waiting       int64   `json:"waiting"`
	PrefillTokens int64   `json:"prefill_tokens"`
	Tokens        int64   `json:"tokens"`
	Rate          float64 `json:"dispatch_rate"`
	GaugeAge      float64 `json:"gauge_age_ms"` // -1: never sampled
	EngineWaiting int     `json:"engine_waiting"`
	EngineRunning int     `json:"engine_running"`
	KVUse         float64 `json:"kv_use"`
}

// ExplainedProfile is what one profile made of the candidates.
type ExplainedProfile struct {
	Profile string         `json:"profile"`
	Picked  []string       `json:"picked"`
	Rows    []ExplainedRow `json:"rows"`
}

// ExplainedRow is one candidate in one profile.
type ExplainedRow struct {
	Endpoint string           `json:"endpoint"`
	Dropped  string           `json:"dropped_by,omitempty"` // the filter that left it out, or role
	Scores   []ExplainedScore `json:"scores,omitempty"`
	Total    float64          `json:"total"`
}

// ExplainedScore is one scorer's word on one candidate.
type ExplainedScore struct {
	Scorer string  `json:"scorer"`
	Raw    float64 `json:"raw"`
	Weight float64 `json:"weight"`
}

// ExplainedOutcome is how the request ended.
type ExplainedOutcome struct {
	Status       int     `json:"status"`
	Served       string  `json:"served"`
	Failed       string  `json:"failed_over,omitempty"` // the endpoint that failed first, and how
	Against      string  `json:"against,omitempty"`     // what the end says against the endpoint that served
	TTFT         float64 `json:"ttft_ms,omitempty"`
	Took         float64 `json:"took_ms"`
	PromptTokens int     `json:"prompt_tokens,omitempty"`
	CachedTokens int     `json:"cached_tokens,omitempty"`
	OutputTokens int     `json:"output_tokens,omitempty"`
}

// Explain returns the kept decision about a request, the latest one if there
// are several.
func (rs *Records) Explain(requestID string) (Explanation, bool) {
	for _, e := range rs.last(len(rs.slots), requestID, 1) {
		return e, true
	}
	return Explanation{}, false
}

// Last returns up to n kept decisions, latest first.
func (rs *Records) Last(n int) []Explanation { return rs.last(len(rs.slots), "", n) }

func (rs *Records) last(slots int, id string, n int) []Explanation {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var out []Explanation
	for k := range min(uint64(slots), rs.next) {
		rec := &rs.slots[(rs.next-1-k)%uint64(slots)]
		if id != "" && rec.id != budget.ShortName(id) {
			continue
		}
		if out = append(out, rec.explain()); len(out) >= n {
			break
		}
	}
	return out
}

// Explain returns the decision of a cycle after its handler ran, as Records
// would keep it, with every candidate. It is for dry runs.
func (s *Scheduler) explainCycle(c *Cycle) Explanation {
	var rec record
	p := Prediction{}
	if len(c.plan.Order) > 0 {
		p = c.expected()
	}
	rec.fill(c, p)
	return rec.explain()
}

// Explain decides about r without placing it: nothing is booked, recorded or
// remembered.
func (s *Scheduler) Explain(ctx context.Context, r *request.Request) (Explanation, error) {
	rules := s.rules.Load()
	defer s.release(r)
	s.resolve(rules, r, s.opts.Seed)
	c := s.prepare(ctx, rules, r, s.opts.Now(), s.opts.Seed)
	defer c.Free()
	err := s.decide(c, rules, standing{})
	return s.explainCycle(c), err
}

func (rec *record) explain() Explanation {
	e := Explanation{
		RequestID: rec.id, At: rec.at, Model: rec.model, Target: rec.target, InputTokens: rec.input,
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
	for k := range rec.rows {
		e.Candidates = append(e.Candidates, rec.rows[k].explain())
	}
	for k := range rec.rankings {
		e.Profiles = append(e.Profiles, rec.explainRanking(&rec.rankings[k]))
	}
	rec.explainMargin(&e)
	if o := rec.outcome; o.done {
		e.Outcome = &ExplainedOutcome{
			Status: o.status, Served: o.served, TTFT: millis(o.ttft.Seconds()), Took: millis(o.took.Seconds()),
			Failed: o.failed, Against: against(o.cause),
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

// explainMargin finds the best candidate that was not chosen, in the profile
// that made the choice.
func (rec *record) explainMargin(e *Explanation) {
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
		if row := rec.next(rr); row >= 0 && rr.total[row] == second { // of equals, the one that would be tried next
			name = rec.rows[row].view.Address
		}
		if name != "" {
			e.RunnerUp, e.Margin = name, finite(chosen-second)
		}
		return
	}
}

// next returns the row of the ranking's second pick, -1 when there is none.
func (rec *record) next(rr *recordRanking) int {
	if len(rr.order) < 2 {
		return -1
	}
	return slices.IndexFunc(rec.rows, func(row recordRow) bool { return row.index == rr.order[1] })
}

func (rec *record) explainRanking(rr *recordRanking) ExplainedProfile {
	p := ExplainedProfile{Profile: rr.profile.Name}
	for _, i := range rr.order {
		p.Picked = append(p.Picked, rec.address(i))
	}
	scorers := rr.profile.Scorers
	for k := range rec.rows {
		if rr.verdict[k] == verdictFar {
			continue
		}
		row := ExplainedRow{Endpoint: rec.rows[k].view.Address, Total: finite(rr.total[k])}
		if f := rr.verdict[k]; f == verdictUnable || f > 0 && int(f) <= len(rr.profile.Filters) {
			row.Dropped = "role"
			if f != verdictUnable {
				row.Dropped = rr.profile.Filters[f-1].Name
			}
			p.Rows = append(p.Rows, row)
			continue
		}
		for s := range scorers {
			raw := finite(rr.raw[k*len(scorers)+s])
			row.Scores = append(row.Scores, ExplainedScore{scorers[s].Name, raw, scorers[s].Weight})
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

func (row *recordRow) explain() ExplainedCandidate {
	v := &row.view
	c := ExplainedCandidate{
		Endpoint: v.Address, Name: v.Name, Matched: map[string]int{}, Held: finite(row.held), Blocks: int(row.run.Blocks),
		Load: ExplainedLoad{
			Requests: v.Load.Requests, Waiting: v.Load.Waiting, PrefillTokens: v.Load.Prefill, Tokens: v.Load.Tokens,
			Rate: v.Load.Rate, GaugeAge: -1,
		},
	}
	if v.Sampled {
		c.Load.GaugeAge, c.Load.EngineWaiting = millis(v.Age.Seconds()), v.Waiting
		c.Load.EngineRunning, c.Load.KVUse = v.Running, v.KVUse
	}
	for tier, n := range row.run.Tokens {
		if n > 0 {
			c.Matched[block.Tier(tier).String()] = int(n)
		}
	}
	if row.pred != (Prediction{}) { // else no scorer looked at it
		t := explainTime(row.pred)
		c.Predicted = &t
	}
	return c
}

func explainTime(p Prediction) ExplainedTime {
	return ExplainedTime{millis(p.TTFT()), millis(p.Wait), millis(p.Own), millis(p.Base), millis(p.Others)}
}

func millis(s float64) float64 { return finite(math.Round(s*1e6) / 1e3) }

// finite makes a number that JSON can hold.
func finite(v float64) float64 {
	switch {
	case v != v, v == 0: // no number, or minus zero
		return 0
	case math.IsInf(v, 0):
		return math.Copysign(math.MaxFloat64, v)
	default:
		return v
	}
}
