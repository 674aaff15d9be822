package pd

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Options configures a Handler. Decode is required. A stage without a decider always stays at the
// serving endpoint; one with a decider needs a profile.
type Options struct {
	Decode, Prefill, Encode   *cycle.Profile
	SplitPrefill, SplitEncode plugin.Decider
	// PrimaryPort is the port for requests at addresses whose data-parallel ranks are separate
	// endpoints; a header names the rank. 0: ranks are reached at their own ports.
	PrimaryPort uint16
	// NeedPrefill rejects requests to be split if no prefill endpoint is available, instead of
	// computing the prompt at the serving endpoint.
	NeedPrefill bool
}

var errNoProfile = errors.New("pd: a profile is missing")

// Handler is a cycle.ProfileHandler.
type Handler struct{ o Options }

// New returns a handler.
func New(o Options) (*Handler, error) {
	if o.Decode == nil || o.SplitPrefill.Split != nil && o.Prefill == nil || o.SplitEncode.Split != nil && o.Encode == nil {
		return nil, errNoProfile
	}
	return &Handler{o}, nil
}

// Profiles returns the profiles in use.
func (h *Handler) Profiles() []*cycle.Profile {
	list := []*cycle.Profile{h.o.Decode}
	if h.o.SplitPrefill.Split != nil {
		list = append(list, h.o.Prefill)
	}
	if h.o.SplitEncode.Split != nil {
		list = append(list, h.o.Encode)
	}
	return list
}

// Handle implements cycle.ProfileHandler.
func (h *Handler) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	ranking, err := h.o.Decode.RunServingIf(c, h.served(c))
	if err != nil || len(ranking.Order) == 0 {
		return err
	}
	best := ranking.Best()
	plan.Order = append(plan.Order, ranking.Order...)
	if h.o.PrimaryPort != 0 {
		h.atPort(c, plan, best)
	}
	if !divisible(c, best) {
		return nil
	}
	c.Peer = c.All(best).Endpoint
	if h.o.SplitPrefill.Pair != nil { // which may choose another serving endpoint
		if err := h.pair(c, plan, ranking); err != nil {
			return err
		}
		best = plan.Order[0]
	}
	if h.o.SplitEncode.Split != nil {
		h.encode(c, plan, best)
	}
	if h.o.SplitPrefill.Pair == nil && h.o.SplitPrefill.Split != nil {
		return h.prefill(c, plan, best)
	}
	return nil
}

// divisible reports whether a request can be served in parts: it generates text and needs a single
// KV transfer. Decode-only engines that cannot serve whole requests accept every generating
// request.
func divisible(c *cycle.Cycle, serving int32) bool {
	r := c.Request
	if r.Kind == request.KindOther || r.Kind == request.KindEmbeddings {
		return false
	}
	return !r.Whole && r.Prompt.Form != request.FormTexts && r.Prompt.Form != request.FormBatches || consumes(c.All(serving))
}

// atPort routes the request to the primary port and names the rank in a header.
func (h *Handler) atPort(c *cycle.Cycle, plan *cycle.Plan, best int32) {
	ep := c.All(best).Endpoint
	if netip.AddrPortFrom(ep.Addr.Addr(), h.o.PrimaryPort) == ep.Addr {
		return
	}
	plan.Order, plan.Port = plan.Order[:1], h.o.PrimaryPort
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderDataParallel, Value: ep.Address})
}

// prefill plans a remote prefill if it is worthwhile.
func (h *Handler) prefill(c *cycle.Cycle, plan *cycle.Plan, best int32) error {
	t := stage{cycle.StagePrefill, h.o.Prefill, h.o.SplitPrefill, endpoint.RolePrefill}
	s, order := t.decide(c, best)
	s.Revision = c.All(best).Revision
	if s.Outcome == cycle.StageSplit && !h.o.NeedPrefill {
		order = slices.DeleteFunc(order, func(i int32) bool { return i != best && !usable(c, i, best) })
		switch {
		case len(order) == 0:
			s.Outcome, s.Chosen = cycle.StageSkipped, -1
		case order[0] == best:
			s.Outcome, s.Chosen = cycle.StageLocal, best
		default:
			s.Chosen = order[0]
		}
	}
	plan.Stages = append(plan.Stages, s)
	if s.Outcome == cycle.StageSplit {
		h.feed(c, plan, best, order)
	}
	return h.refusal(c, s.Outcome, best)
}

// encode plans remote encoding of images and audio. The items are distributed over all endpoints of
// the header.
func (h *Handler) encode(c *cycle.Cycle, plan *cycle.Plan, best int32) {
	t := stage{cycle.StageEncode, h.o.Encode, h.o.SplitEncode, endpoint.RoleEncode}
	s, order := t.decide(c, best)
	s.Revision = c.All(best).Revision
	plan.Stages = append(plan.Stages, s)
	if s.Outcome != cycle.StageSplit {
		return
	}
	keepRevision(c, plan, best)
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderEncoders, Value: addresses(c, order, best)})
	items := max(c.Request.Prompt.Media, 1)
	for _, i := range order {
		if i == best || items == 0 {
			continue
		}
		items--
		plan.Also = append(plan.Also, cycle.Part{Index: i})
	}
}

// stage is a stage of the work other than decoding.
type stage struct {
	kind    cycle.StageKind
	profile *cycle.Profile
	split   plugin.Decider
	role    endpoint.Role
}

// decide ranks the stage's endpoints if a remote stage is worthwhile. order is valid until the
// cycle's end.
func (t *stage) decide(c *cycle.Cycle, best int32) (s cycle.Stage, order []int32) {
	s = cycle.Stage{Kind: t.kind, Outcome: cycle.StageSkipped, Chosen: -1, Missing: missing(c, best)}
	if !t.split.Split(c, best) {
		return s, nil
	}
	able := t.able(c)
	if serving := c.All(best).Endpoint; serving.Revision != "" {
		ofRole := able
		able = func(v *cycle.View) bool { return ofRole(v) && endpoint.Paired(v.Endpoint, serving) }
	}
	ranking := t.profile.RunAmong(c, able)
	s.Chosen = ranking.Best()
	switch s.Chosen {
	case -1:
		s.Outcome = cycle.StageNoEndpoint
	case best:
		s.Outcome = cycle.StageLocal
	default:
		s.Outcome = cycle.StageSplit
	}
	return s, ranking.Order
}

// able returns a predicate for the endpoints that may do the stage. These are the endpoints
// labelled for the stage. If none is labelled and the profile's filters use other criteria, they
// are the endpoints without a label.
func (t *stage) able(c *cycle.Cycle) func(*cycle.View) bool {
	labelled := prefills
	if t.role == endpoint.RoleEncode {
		labelled = encodes
	}
	for i := range c.Candidates() {
		if len(t.profile.Filters) == 0 || labelled(c.All(int32(i))) {
			return labelled
		}
	}
	return unlabelled
}

func prefills(v *cycle.View) bool { return v.Role&endpoint.RolePrefill != 0 }
func encodes(v *cycle.View) bool  { return v.Role&endpoint.RoleEncode != 0 }
func unlabelled(v *cycle.View) bool {
	_, has := v.Label(endpoint.LabelRole)
	return !has
}

// missing returns the number of prompt tokens that a candidate does not hold in any tier.
func missing(c *cycle.Cycle, i int32) int {
	return max(c.Request.InputTokens-int(c.RunAt(i).Total()), 0)
}

// addresses lists the endpoints at positions, without the serving one.
func addresses(c *cycle.Cycle, order []int32, without int32) string {
	if len(order) == 1 {
		return c.All(order[0]).Address
	}
	var b strings.Builder
	for _, i := range order {
		if i == without {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(c.All(i).Address)
	}
	return b.String()
}
