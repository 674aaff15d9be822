package explain

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
)

// Notes of decisions that are repeated under another configuration.
const (
	notePast    = "load, gauges and cached tokens are those of the stored decision; labels and learned costs are the present ones"
	noteRequest = "a stored decision has no headers and no body: rules that read them see an empty request, and sessions count as new"
)

// past returns the candidates of the stored decision, with the state that they had then. Labels and
// learned costs come from st, since decisions do not store them. Candidates that have left the pool are
// omitted.
func (o *Offline) past(st *fleet) (*fleet, error) {
	now := map[string]*saved.Endpoint{}
	for i := range st.Endpoints {
		now[st.Endpoints[i].Address] = &st.Endpoints[i]
	}
	out := &fleet{}
	for i := range o.Past.Candidates {
		c := &o.Past.Candidates[i]
		ep, ok := now[c.Endpoint]
		if !ok || ep.Facts == nil {
			continue
		}
		was, facts := *ep, *ep.Facts
		l := &c.Load
		facts.Load = saved.LoadFacts{
			Requests: l.Requests, Waiting: l.Waiting, PrefillTokens: l.PrefillTokens, Pairs: l.Pairs, Tokens: l.Tokens, Context: l.Context,
			Rate: l.Rate, Busy: l.Busy, SinceFirstS: facts.Load.SinceFirstS,
		}
		was.Up, was.InFlight, was.Values, was.GaugeAgeS, was.Facts = true, l.Requests, l.Values, l.GaugeAge/1000, &facts
		if l.GaugeAge < 0 {
			was.GaugeAgeS = -1
		}
		out.Endpoints = append(out.Endpoints, was)
	}
	if len(out.Endpoints) == 0 {
		return nil, fmt.Errorf("no candidate of the stored decision is in the pool now")
	}
	return out, nil
}

// pastHolders sets the cached tokens of the stored decision.
func (o *Offline) pastHolders(p *endpoint.Pool, out holders) {
	for i := range o.Past.Candidates {
		c := &o.Past.Candidates[i]
		if ep := p.Snapshot().Lookup(c.Endpoint); ep != nil {
			var tokens [block.NumTiers]int32
			for tier := range tokens {
				tokens[tier] = int32(c.Matched[block.Tier(tier).String()])
			}
			out[ep.ID] = tokens
		}
	}
}

func (o *Offline) pastNotes(st *fleet) []string {
	notes := []string{notePast, noteRequest}
	if gone := len(o.Past.Candidates) - len(st.Endpoints); gone > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d candidates have left the pool and are omitted", gone, len(o.Past.Candidates)))
	}
	if n := o.Past.Omitted; n > 0 {
		notes = append(notes, fmt.Sprintf("%d further candidates were not stored and are omitted", n))
	}
	return notes
}

// compare identifies the repeated decision and adds the choice of the stored one.
func (o *Offline) compare(d *Decision) {
	d.RequestID, d.At, d.Prompt, d.Decided = o.Past.RequestID, o.Past.At, o.Past.Prompt, o.Past.Choice
	verdict := "the stored decision chose the same endpoint"
	switch {
	case d.Refused != "":
		verdict = "this configuration refuses the request; the stored decision chose " + o.Past.Choice
	case o.Past.Choice == "":
		verdict = "the stored decision refused the request: " + o.Past.Refused
	case d.Choice != o.Past.Choice:
		verdict = "the stored decision chose " + o.Past.Choice
	}
	d.Notes = append([]string{verdict}, d.Notes...)
}
