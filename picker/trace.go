package picker

import (
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// tracePrompt ends the span of a prompt's rendering.
func tracePrompt(span *tracing.Span, r *request.Request) {
	if span == nil {
		return
	}
	p := explainPrompt(r)
	span.Set(tracing.PromptSpace.String(p.Space), tracing.PromptBytes.Int(p.Bytes), tracing.Prompt.Int(r.InputTokens))
	span.End()
}

// traceChoice adds the arithmetic of a sampled decision to its span, in the numbers of explain.
func (s *Scheduler) traceChoice(c *cycle.Cycle) {
	span := c.Request.Trace
	if span == nil {
		return
	}
	e := s.explainCycle(c)
	span.SetInt(tracing.Candidates, c.Candidates())
	list := appendCandidate(make([]attribute.KeyValue, 0, 24), tracing.Chosen, &e, e.Choice)
	if e.RunnerUp != "" {
		list = appendCandidate(list, tracing.Second, &e, e.RunnerUp)
		list = append(list, tracing.Margin.Float64(e.Margin))
	}
	span.Event(tracing.EventChoice, list...)
}

// appendCandidate appends the attributes of one candidate.
func appendCandidate(list []attribute.KeyValue, as tracing.Candidate, e *explanation.Explanation, address string) []attribute.KeyValue {
	list = append(list, as.Key(tracing.OfEndpoint).String(address))
	for i := range e.Candidates {
		k := &e.Candidates[i]
		if k.Endpoint != address {
			continue
		}
		matched := 0
		for _, n := range k.Matched {
			matched += n
		}
		list = append(list, as.Key(tracing.OfMatched).Int(matched))
		t := k.Predicted
		if t == nil && address == e.Choice {
			t = &e.Predicted
		}
		if t != nil {
			list = append(list,
				as.Key(tracing.OfTTFT).Float64(t.TTFT), as.Key(tracing.OfWait).Float64(t.Wait), as.Key(tracing.OfOwn).Float64(t.Own), as.Key(tracing.OfBase).Float64(t.Base),
				as.Key(tracing.OfFetch).Float64(t.Fetch), as.Key(tracing.OfLoad).Float64(t.Load), as.Key(tracing.OfOthers).Float64(t.Others))
		}
	}
	return appendScores(list, as, e, address)
}

// appendScores appends a candidate's scores in the profile that chose the serving endpoint.
func appendScores(list []attribute.KeyValue, as tracing.Candidate, e *explanation.Explanation, address string) []attribute.KeyValue {
	for i := range e.Profiles {
		p := &e.Profiles[i]
		if len(p.Picked) == 0 || p.Picked[0] != e.Choice {
			continue
		}
		k := slices.IndexFunc(p.Rows, func(r explanation.Row) bool { return r.Endpoint == address })
		if k < 0 {
			continue
		}
		scores := make([]string, 0, 8)
		for _, s := range p.Rows[k].Scores {
			scores = append(scores, s.Scorer+"="+strconv.FormatFloat(s.Raw, 'g', 6, 64)+"*"+strconv.FormatFloat(s.Weight, 'g', 6, 64))
		}
		return append(list, as.Key(tracing.OfTotal).Float64(p.Rows[k].Total), as.Key(tracing.OfScores).StringSlice(scores))
	}
	return list
}
