package plugins

import (
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// urgencyParams are the parameters of engine-priority-producer.
type urgencyParams struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []labelTerm       `json:"matchExpressions,omitempty"`
	EveryEndpoint    bool              `json:"everyEndpoint"`
	WorkWeight       float64           `json:"workWeight"`
	OverClients      bool              `json:"overClients"`
}

var urgencyDefaults = urgencyParams{WorkWeight: 8}

// urgency defines which engines schedule by priority, and a request's priority there: its arrival
// time in milliseconds plus workWeight times its predicted prefill in milliseconds. Lower runs
// first. A request with t seconds of prefill therefore yields to smaller ones that arrive up to
// workWeight × t later, but to no others, so it cannot starve.
type urgency struct {
	urgencyParams
	engines selector // without terms: all
}

func newUrgency(p urgencyParams) (plugin.Plugin, error) {
	u := urgency{urgencyParams: p}
	labelled := len(p.MatchLabels)+len(p.MatchExpressions) > 0
	faults := []error{
		plugin.Require(p.WorkWeight > 0 && p.WorkWeight <= maxWorkWeight, "workWeight", fmt.Sprintf("must be more than 0 and at most %d", maxWorkWeight)),
		plugin.Require(labelled != p.EveryEndpoint, "everyEndpoint", "or else matchLabels or matchExpressions must say whose engines schedule by priority; others may refuse requests that have one"),
	}
	if labelled {
		s, err := newSelector(selectorParams{MatchLabels: p.MatchLabels, MatchExpressions: p.MatchExpressions})
		u.engines, _ = s.Filter.(selector)
		faults = append(faults, err)
	}
	return plugin.Plugin{Producer: &plugin.Producer{Urgency: u.of, UrgencyText: u.describe()}}, plugin.Faults(faults...)
}

// maxWorkWeight keeps the added time within a day for minutes of prefill.
const maxWorkWeight = 1000

// of implements picker.Rules.Urgency.
func (u urgency) of(c *cycle.Cycle, endpoints []string, own float64) (int64, bool) {
	if !schedulable(c.Request.Kind) || c.Request.Urgency.Found() && !u.OverClients {
		return 0, false
	}
	for _, address := range endpoints {
		if !u.declared(c, address) {
			return 0, false
		}
	}
	return c.Now.UnixMilli() + int64(1e3*min(u.WorkWeight*own, mostLater)), true
}

// mostLater bounds the added time in seconds.
const mostLater = 24 * 3600

// declared reports whether the engine at an address schedules by priority.
func (u urgency) declared(c *cycle.Cycle, address string) bool {
	if u.EveryEndpoint {
		return true
	}
	i := c.Pool.Index(address)
	if i < 0 {
		return false
	}
	for k := range u.engines.terms {
		t := &u.engines.terms[k]
		if v, ok := c.Pool.Endpoints[i].Label(t.Key); !t.holds(v, ok) {
			return false
		}
	}
	return true
}

// schedulable reports whether requests of the kind have a priority.
func schedulable(k request.Kind) bool {
	switch k {
	case request.KindCompletions, request.KindChat, request.KindResponses, request.KindGenerate:
		return true
	default:
		return false
	}
}

// PropagatePriority is the engine priority of requestHandler.propagatePriority: the priority of the
// request's objective, also instead of a client's. Of vLLM, lower priorities run first, so it is negative
// at endpoints whose label names vLLM.
func PropagatePriority(c *cycle.Cycle, endpoints []string, _ float64) (int64, bool) {
	if c.Request.Kind == request.KindOther || len(endpoints) == 0 {
		return 0, false
	}
	priority := int64(c.Request.Priority)
	if i := c.Pool.Index(endpoints[0]); i >= 0 {
		ep := c.Pool.Endpoints[i]
		engine, ok := ep.Label(endpoint.LabelEngineAlt)
		if !ok || engine == "" {
			engine, _ = ep.Label(endpoint.LabelEngine)
		}
		if strings.EqualFold(engine, endpoint.EngineVLLM.String()) {
			priority = -priority
		}
	}
	return priority, true
}

// describe describes the effect for a configuration check.
func (u urgency) describe() string {
	where := "at every endpoint"
	if !u.EveryEndpoint {
		var terms []string
		for _, t := range u.engines.terms {
			terms = append(terms, strings.TrimSpace(t.Key+" "+t.Operator+" "+strings.Join(t.Values, ", ")))
		}
		where = "where " + strings.Join(terms, " and ")
	}
	clients := "a client's own stays"
	if u.OverClients {
		clients = "a client's own is replaced"
	}
	return fmt.Sprintf("engine priority: written into bodies %s, a second of prefill counts as having come %g s later, %s", where, u.WorkWeight, clients)
}
