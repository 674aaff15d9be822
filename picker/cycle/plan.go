package cycle

import (
	"net/netip"
	"slices"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// StageKind is a part of a request's work that another endpoint than the one
// that serves can do.
type StageKind uint8

// Stages.
const (
	StagePrefill StageKind = iota
	StageEncode
	StageFetch // what the endpoint that serves lacks is fetched from where it is held
	NumStages  = iota
)

// String returns the stage's name.
func (k StageKind) String() string {
	return [...]string{"prefill", "encode", "fetch"}[k]
}

// StageOutcome is what was decided about a stage.
type StageOutcome uint8

// Outcomes.
const (
	StageSplit   StageOutcome = iota // another endpoint does it
	StageSkipped                     // the decider found that it does not pay
	StageLocal                       // the best endpoint for it is the one that serves
	StageNobody                      // it would pay, and no endpoint is left that can: fail open
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
		return "nobody left"
	}
}

// Stage is what a profile handler decided about one stage of a request.
type Stage struct {
	Kind    StageKind
	Outcome StageOutcome
	Chosen  int32 // position among all candidates of the first choice; -1: nobody
	Missing int   // prompt tokens that the endpoint that serves does not hold
	// Whole and Split are the prices of serving the request whole and in parts, in
	// seconds, where they were compared; 0 where not, +Inf for what cannot be.
	Whole, Split float64
}

// Part is work that a request brings to an endpoint besides the one that
// serves it, such as a remote prefill. It ends with the first token.
type Part struct {
	Index int32 // position among all candidates
	Work  endpoint.Work
	// Holds says that the endpoint will hold the prompt's blocks afterwards.
	Holds bool
	// Leads says that the first token waits for this part: what is predicted
	// for it stands for the request.
	Leads bool
	// Moves is how many tokens' blocks go from there to the endpoint that serves.
	Moves int
	// SendsOnly says that this is all it does: it holds them already.
	SendsOnly bool
}

// Leader returns the part for which the first token waits, nil when that is the
// endpoint that serves.
func (p *Plan) Leader() *Part {
	for i := range p.Also {
		if p.Also[i].Leads {
			return &p.Also[i]
		}
	}
	return nil
}

// Destinations appends the addresses of the plan. Where the first one is
// reached at another port there are no fallbacks, since the headers of the plan
// speak of it alone.
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

// Expected returns what is predicted of the request as planned.
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

// prediction returns what a scorer predicted for candidate i, or the plain
// model's word when none did.
func (c *Cycle) prediction(i int32, w endpoint.Work) Prediction {
	if c.hasPred && c.predicted[i] != (Prediction{}) {
		return c.predicted[i]
	}
	v := c.views[i].Rank()
	return Prediction{Wait: v.Cost.Wait(&v.Load, c.Now), Own: v.Cost.Prefill(w), Base: v.Cost.Base}
}

// Plan is what a profile handler decided.
type Plan struct {
	Order   []int32             // positions among all candidates, best first; Order[0] serves
	New     int                 // tokens that Order[0] computes itself; -1: what it does not hold
	Fetched int32               // tokens of which Order[0] fetches the blocks
	Port    uint16              // where Order[0] is reached, when not at its own port
	Headers []request.HeaderSet // further request headers
	Also    []Part              // work of the request at other endpoints
	Stages  []Stage             // what was decided about each stage, for metrics and explain
	WarmUp  int32               // position among all candidates of who is to be sent the prompt as well; -1: nobody
}

func (p *Plan) reset() {
	clear(p.Headers)
	p.Order, p.New, p.Fetched, p.Port, p.Headers = p.Order[:0], -1, 0, 0, p.Headers[:0]
	p.WarmUp = -1
	p.Also, p.Stages = p.Also[:0], p.Stages[:0]
}

// ProfileHandler runs the profiles that a request needs and makes a plan of
// their rankings. An empty plan order without an error means that nobody was
// left. It is safe for concurrent use.
type ProfileHandler interface {
	Handle(c *Cycle, plan *Plan) error
}
