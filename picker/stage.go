package picker

import (
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explained"
)

// StageKind is a part of a request's work that another endpoint than the one
// that serves can do.
type StageKind uint8

// Stages.
const (
	StagePrefill StageKind = iota
	StageEncode
	StageFetch // what the endpoint that serves lacks is fetched from where it is held
	numStages  = iota
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
	numStageOutcomes
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

// leader returns the part for which the first token waits, nil when that is the
// endpoint that serves.
func (p *Plan) leader() *Part {
	for i := range p.Also {
		if p.Also[i].Leads {
			return &p.Also[i]
		}
	}
	return nil
}

func (rec *record) explainStages() []explained.Stage {
	var out []explained.Stage
	for _, s := range rec.stages {
		e := explained.Stage{Stage: s.Kind.String(), Outcome: s.Outcome.String(), Missing: s.Missing, Whole: millis(s.Whole), Split: millis(s.Split)}
		if s.Chosen >= 0 {
			e.Endpoint = rec.address(s.Chosen)
		}
		out = append(out, e)
	}
	return out
}
