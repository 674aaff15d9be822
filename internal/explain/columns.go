package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/explanation"
)

func candidateColumns(e *Decision) []column {
	endpoint, name, known := column{head: "ENDPOINT", left: true}, column{head: "NAME", left: true}, column{head: "KNOWN", left: true}
	held, blocks := column{head: "HELD TOKENS", left: true}, column{head: "BLOCKS"}
	requests, waiting, prefill, tokens, rate := column{head: "IN FLIGHT"}, column{head: "WAITING"}, column{head: "PREFILL TOKENS"}, column{head: "TOKENS"}, column{head: "PER SECOND"}
	queue, running, use, age := column{head: "ENGINE QUEUE"}, column{head: "RUNS"}, column{head: "KV USE"}, column{head: "GAUGE AGE"}
	ranks, several := column{head: "RANKS"}, false
	for i := range e.Candidates {
		c := &e.Candidates[i]
		endpoint.add("%s", c.Endpoint)
		name.add("%s", cut(c.Name, 16))
		known.add("%s", knownText(e, c.Endpoint))
		held.add("%s", heldText(c))
		blocks.add("%d", c.Blocks)
		l := &c.Load
		requests.add("%d", l.Requests)
		waiting.add("%d", l.Waiting)
		prefill.add("%d", l.PrefillTokens)
		tokens.add("%d", l.Tokens)
		rate.add("%.2f", l.Rate)
		ranks.add("%d", max(l.Ranks, 1))
		several = several || l.Ranks > 1
		if l.GaugeAge < 0 {
			queue.add("-")
			running.add("-")
			use.add("-")
			age.add("-")
			continue
		}
		queue.add("%d", l.Values.Waiting)
		running.add("%d", l.Running)
		use.add("%.0f%%", 100*l.KVUse)
		age.add("%.0fms", l.GaugeAge)
	}
	columns := []column{endpoint, name}
	if len(e.Knowledge) > 0 {
		columns = append(columns, known)
	}
	if several {
		columns = append(columns, ranks)
	}
	columns = append(columns, held, blocks, requests, waiting, prefill, tokens, rate, queue, running, use)
	return append(append(columns, customColumns(e)...), age)
}

// customColumns has one column for each custom gauge, by name.
func customColumns(e *Decision) []column {
	names := map[string]bool{}
	for i := range e.Candidates {
		for name := range e.Candidates[i].Load.Custom {
			names[name] = true
		}
	}
	var columns []column
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := column{head: strings.ToUpper(name)}
		for i := range e.Candidates {
			if value, ok := e.Candidates[i].Load.Custom[name]; ok {
				c.add("%.6g", value)
			} else {
				c.add("-")
			}
		}
		columns = append(columns, c)
	}
	return columns
}

// knownText formats how well an endpoint is known, and the age of that.
func knownText(e *Decision, address string) string {
	if age := e.AgeMS[address]; age > 0 {
		return fmt.Sprintf("%s, up to %.1f s behind", e.Knowledge[address], age/1000)
	}
	return e.Knowledge[address]
}

// heldText lists the matched tokens by tier, best first, and their weighted sum.
func heldText(c *explanation.Candidate) string {
	var parts []string
	sum := 0
	for t := range block.NumTiers {
		if n := c.Matched[t.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", t, n))
			sum += n
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	text := strings.Join(parts, ", ")
	if c.Held != float64(sum) {
		text += fmt.Sprintf(" = %.0f", c.Held)
	}
	return text
}

func predictionColumns(e *Decision) []column {
	endpoint := column{head: "ENDPOINT", left: true}
	first, wait, own, base, others := column{head: "FIRST TOKEN"}, column{head: "WAIT"}, column{head: "OWN PREFILL"}, column{head: "FIXED"}, column{head: "COST TO OTHERS"}
	fetch, fetches := column{head: "FETCHING"}, false
	for i := range e.Candidates {
		p := e.Candidates[i].Predicted
		if p == nil {
			continue
		}
		endpoint.add("%s", e.Candidates[i].Endpoint)
		first.add("%.1f", p.TTFT)
		wait.add("%.1f", p.Wait)
		fetch.add("%.1f", p.Fetch)
		fetches = fetches || p.Fetch > 0
		own.add("%.1f", p.Own)
		base.add("%.1f", p.Base)
		others.add("%.1f", p.Others)
	}
	if len(endpoint.cells) == 0 {
		return nil
	}
	if fetches {
		return []column{endpoint, first, wait, fetch, own, base, others}
	}
	return []column{endpoint, first, wait, own, base, others}
}

func profileColumns(p *explanation.Profile) []column {
	endpoint, verdict, total := column{head: "ENDPOINT", left: true}, column{head: "VERDICT", left: true}, column{head: "TOTAL"}
	var scores []column
	for i := range p.Rows {
		for k, s := range p.Rows[i].Scores {
			if k == len(scores) {
				scores = append(scores, column{head: fmt.Sprintf("%s ×%g", s.Scorer, s.Weight), cells: blank(i)})
			}
		}
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		endpoint.add("%s", r.Endpoint)
		verdict.add("%s", verdictOf(p, r))
		if r.Dropped != "" {
			total.add("-")
		} else {
			total.add("%.5g", r.Total)
		}
		for k := range scores {
			cell := "-"
			if k < len(r.Scores) {
				cell = fmt.Sprintf("%.4g", r.Scores[k].Raw)
			}
			scores[k].cells = append(scores[k].cells[:i], cell)
		}
	}
	return append(append([]column{endpoint, verdict}, scores...), total)
}

func blank(n int) []string { return make([]string, n) }

func verdictOf(p *explanation.Profile, r *explanation.Row) string {
	if r.Dropped != "" {
		return "out: " + r.Dropped
	}
	for i, address := range p.Picked {
		if address == r.Endpoint {
			return fmt.Sprintf("pick %d", i+1)
		}
	}
	return "passed"
}
