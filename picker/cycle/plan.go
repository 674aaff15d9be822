package cycle

import (
	"net/netip"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// StageKind is a part of a request's work that an endpoint other than the serving one can do.
type StageKind uint8

// Stages.
const (
	StagePrefill StageKind = iota
	StageEncode
	StageFetch // missing blocks are fetched from another holder
	NumStages  = iota
)

// String returns the stage's name.
func (k StageKind) String() string {
	return [...]string{"prefill", "encode", "fetch"}[k]
}

// StageOutcome is the decision about a stage.
type StageOutcome uint8

// Outcomes.
const (
	StageSplit      StageOutcome = iota // another endpoint does it
	StageSkipped                        // not worth it, according to the decider
	StageLocal                          // the serving endpoint is the best one for this stage
	StageNoEndpoint                     // worth it, but no endpoint is available: fail open
	NumStageOutcomes
)

// String returns the outcome's name.
func (o StageOutcome) String() string {
	switch o {
	case StageSplit:
		return "split"
	case StageSkipped:
		return "not worth it"
	case StageLocal:
		return "same endpoint"
	default:
		return "no endpoint"
	}
}

// Stage is a profile handler's decision about one stage of a request.
type Stage struct {
	Kind    StageKind
	Outcome StageOutcome
	Chosen  int32 // first choice as a position among all candidates; -1: none
	Missing int   // prompt tokens that the serving endpoint does not hold
	// Whole and Split are the costs of serving the request whole and in parts, in seconds. 0 if not
	// compared, +Inf if impossible.
	Whole, Split float64
	// Revision is the serving endpoint's, to which the stage is limited; "": unknown.
	Revision string
}

// Part is a request's work at an endpoint other than the serving one, such as a remote prefill. It
// ends with the first token.
type Part struct {
	Index int32 // position among all candidates
	Work  endpoint.Work
	// Holds means that the endpoint will hold the prompt's blocks afterwards.
	Holds bool
	// Leads means that the first token waits for this part. Its prediction is used for the request.
	Leads bool
	// Moves is the number of tokens whose blocks are sent to the serving endpoint.
	Moves int
	// SendsOnly means that the part only sends blocks that the endpoint already holds.
	SendsOnly bool
}

// Leader returns the part that the first token waits for, or nil if that is the serving endpoint.
func (p *Plan) Leader() *Part {
	for i := range p.Also {
		if p.Also[i].Leads {
			return &p.Also[i]
		}
	}
	return nil
}

// Computes returns the position of the endpoint that computes the prompt, among all candidates.
func (p *Plan) Computes() int32 {
	if leader := p.Leader(); leader != nil {
		return leader.Index
	}
	return p.Order[0]
}

// Destinations appends the plan's addresses. If the first endpoint is reached at another port,
// there are no fallbacks, because the plan's headers apply to that endpoint only.
func (c *Cycle) Destinations(list []string) []string {
	if c.plan.Port != 0 {
		at := netip.AddrPortFrom(c.endpoints[c.plan.Order[0]].Addr.Addr(), c.plan.Port).String()
		if !c.Request.HasSubset || slices.Contains(c.Request.Subset, at) {
			return append(list, at)
		}
	}
	for _, i := range c.plan.Order {
		list = append(list, c.endpoints[i].Address)
	}
	return c.appendReserve(list)
}

// Expected returns the prediction for the request as planned.
func (c *Cycle) Expected() Prediction {
	if p := c.plan.Leader(); p != nil {
		return c.prediction(p.Index, p.Work)
	}
	best := c.plan.Order[0]
	work := c.WorkAt(best)
	if c.plan.New >= 0 {
		work.New = c.plan.New
	}
	return c.prediction(best, work)
}

// prediction returns a scorer's prediction for candidate i, or the plain cost model's if there is
// none.
func (c *Cycle) prediction(i int32, w endpoint.Work) Prediction {
	if c.HasPredicted(i) && c.predicted[i] != (Prediction{}) {
		return c.predicted[i]
	}
	v := c.All(i).Rank()
	return Prediction{Wait: v.Cost.Wait(&v.Load, c.Now), Own: v.Cost.Prefill(w), Base: v.Cost.Base}
}

// Plan is a profile handler's decision.
type Plan struct {
	Order   []int32             // positions among all candidates, best first; Order[0] serves
	New     int                 // tokens that Order[0] computes itself; -1: all that it does not hold
	Fetched int32               // tokens whose blocks Order[0] fetches
	Port    uint16              // port of Order[0], if not its own
	Headers []request.HeaderSet // further request headers
	Also    []Part              // work of the request at other endpoints
	Stages  []Stage             // decision about each stage, for metrics and explain
	WarmUp  int32               // position among all candidates of the endpoint to warm up; -1: none
}

func (p *Plan) reset() {
	clear(p.Headers)
	p.Order, p.New, p.Fetched, p.Port, p.Headers = p.Order[:0], -1, 0, 0, p.Headers[:0]
	p.WarmUp = -1
	p.Also, p.Stages = p.Also[:0], p.Stages[:0]
}

// ProfileHandler runs the profiles that a request needs and makes a plan of their rankings. An
// empty plan order without an error means that no candidate was left. It is safe for concurrent
// use.
type ProfileHandler interface {
	Handle(c *Cycle, plan *Plan) error
}
