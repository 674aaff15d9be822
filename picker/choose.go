package picker

import (
	"context"
	"errors"
	"time"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// chosen is a request with a complete plan.
type chosen struct {
	prepared
	remoteEnded func(status int) // reports the end to the remote cluster's picker; nil: not involved
}

// errStays means that no remote cluster justifies leaving the queue.
var errStays = errors.New("picker: the request stays in the queue")

// choose fills the cycle's plan: the endpoint to serve the request, and the others in order. A
// remote cluster chooses its endpoint itself.
func (s *Scheduler) choose(ctx context.Context, p prepared) (chosen, error) {
	err := s.rank(p)
	if n := p.cycle.Failures(); n > 0 {
		s.metrics.evaluations.Add(float64(n))
	}
	if err != nil {
		return chosen{}, err
	}
	return chosen{p, s.resolveRemote(ctx, p)}, nil
}

// rank fills the plan with endpoints of this cluster, unless the request may only leave it, and
// lets remote clusters compete.
func (s *Scheduler) rank(p prepared) error {
	err := p.gateRefusal
	if err == nil {
		err = s.rankLocal(p)
	}
	p.cycle.SetQueueWait(p.queueWait)
	if err = s.offerRemote(p, err); err == nil && p.queueWait > 0 && !p.cycle.First().IsRemote() {
		return errStays
	}
	return err
}

// rankLocal fills the plan with endpoints of this cluster.
func (s *Scheduler) rankLocal(p prepared) error {
	c := p.cycle
	if c.Unserved() {
		if !s.opts.PlaceUnknown {
			return request.Errorf(request.ReasonModelNotFound, "The model `%s` does not exist.", budget.PrintableName(p.request.Model))
		}
		c.AllowAll()
	}
	if c.Candidates() == 0 {
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready")
	}
	if s.opts.RefuseKillers && !s.prompts.Empty() && s.prompts.Killer(p.request.PromptKey(), c.Now) {
		return request.Errorf(request.ReasonBadRequest, "this prompt was in flight at two engines when they died a short time ago")
	}
	if p.rules.Admit != nil {
		if err := p.rules.Admit(c); err != nil {
			return err
		}
	}
	if err := p.rules.Handler.Handle(c, c.Plan()); err != nil {
		return err
	}
	if c.Best() < 0 {
		return request.Errorf(request.ReasonNoEndpoints, "no endpoint passed the filters")
	}
	c.PlanFetch()
	if p.rules.Pull != nil {
		c.PlanPull(p.rules.Pull(c))
	}
	return nil
}

// recordRefusal records a request without a decision, unless it stays in the queue or the Gate had
// refused it before.
func (s *Scheduler) recordRefusal(p prepared, err error) {
	s.reportSlow(s.opts.Now().Sub(p.cycle.Now))
	if p.mayStay() {
		s.records.addRefused(p.cycle, err)
	}
}

// reportSlow reports a decision that took long.
func (s *Scheduler) reportSlow(took time.Duration) {
	if s.opts.SlowDecision > 0 && took >= s.opts.SlowDecision {
		s.opts.Slow(took)
	}
}
