package pd

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// pair plans the request by the cost of endpoint pairs. The decode profile has ranked the serving
// endpoints; the best one serves requests that are not split.
func (h *Handler) pair(c *cycle.Cycle, plan *cycle.Plan, ranking *cycle.Ranking) error {
	t := stage{cycle.StagePrefill, h.o.Prefill, h.o.SplitPrefill, endpoint.RolePrefill}
	helping := h.o.Prefill.RunAmong(c, t.able(c))
	among := plugin.Among{Serve: ranking.Live, Help: helping.Live, Whole: ranking.Best()}
	way := t.split.Pair(c, among)
	if peer := c.All(way.Serve).Endpoint; way.Helps > 0 && peer != c.Peer { // the profile's filters may use it
		c.Peer = peer
		helping = h.o.Prefill.RunAmong(c, t.able(c))
		at := slices.Index(ranking.Live, way.Serve)
		among.Serve, among.Help = ranking.Live[at:at+1], helping.Live
		way = t.split.Pair(c, among)
	}
	s := cycle.Stage{
		Kind: t.kind, Outcome: cycle.StageSkipped, Chosen: -1, Missing: missing(c, way.Serve), Whole: way.Whole, Split: way.Split,
		Revision: c.All(way.Serve).Revision,
	}
	switch {
	case way.Helps > 0:
		s.Outcome, s.Chosen = cycle.StageSplit, way.Help[0]
	case !slices.ContainsFunc(among.Help, func(i int32) bool { return paired(c, i, way.Serve) }):
		s.Outcome = cycle.StageNoEndpoint
	}
	plan.Stages = append(plan.Stages, s)
	h.serveBy(c, plan, way.Serve)
	if s.Outcome == cycle.StageSplit {
		c.PredictAt(s.Chosen, way.Predicted)
		h.feed(c, plan, way.Serve, way.Help[:way.Helps])
	}
	return h.refusal(c, s.Outcome, way.Serve)
}

// serveBy moves a candidate to the front of the plan.
func (h *Handler) serveBy(c *cycle.Cycle, plan *cycle.Plan, serve int32) {
	if plan.Order[0] == serve {
		return
	}
	if plan.Port != 0 { // the plan is for one endpoint only
		plan.Order, plan.Port, plan.Headers = append(plan.Order[:0], serve), 0, plan.Headers[:0]
		h.atPort(c, plan, serve)
		return
	}
	at := slices.Index(plan.Order, serve)
	if at < 0 {
		at = len(plan.Order) - 1
	}
	copy(plan.Order[1:at+1], plan.Order[:at])
	plan.Order[0] = serve
}

// feed adds endpoints that compute the prompt for the serving one, in order of preference.
func (h *Handler) feed(c *cycle.Cycle, plan *cycle.Plan, serve int32, order []int32) {
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderPrefiller, Value: addresses(c, order, serve)})
	plan.Also = append(plan.Also, cycle.Part{
		Index: order[0], Work: c.WorkAt(order[0]), Holds: true, Leads: true, Moves: missing(c, serve),
	})
	keepRevision(c, plan, serve)
	plan.New = 1 // the prompt's last token is always computed by the serving endpoint
}

// refusal returns the reason to reject a request: it requires a cached prompt and none is cached,
// or no endpoint can compute it.
func (h *Handler) refusal(c *cycle.Cycle, o cycle.StageOutcome, serving int32) error {
	switch {
	case o != cycle.StageSkipped && c.Request.IfAvailable:
		return request.Errorf(request.ReasonNotHeld, "no endpoint holds enough of the prompt")
	case o == cycle.StageNoEndpoint && (h.o.NeedPrefill || consumes(c.All(serving))):
		return request.Errorf(request.ReasonNoEndpoints, "no prefill endpoint is left for this request")
	}
	return nil
}
