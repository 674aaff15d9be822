package picker

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// answer returns the decision of a booked request: where the proxy sends it, with what, and what it
// does if the first endpoint fails. It records the decision, and sends a warm-up if one is planned.
func (s *Scheduler) answer(ch chosen, f *flight) *request.Decision {
	c, plan, r := ch.cycle, ch.cycle.Plan(), ch.request
	f.Endpoints = c.Destinations(f.names[:0])
	f.SetHeaders = slices.Clone(plan.Headers)
	if r.Target != "" && r.Target != r.Model && r.ModelSpan[1] > r.ModelSpan[0] {
		f.ModelTarget = r.Target
	}
	f.Tries = s.allowedTries(c, f)
	f.RetryRefusal = f.ep.IsRemote() && len(plan.Order) > 1 && !c.All(plan.Order[1]).IsRemote()
	if s.prompts.Suspected(f.evidence.prompt, c.Now) {
		f.Endpoints = f.Endpoints[:1]
	}
	f.nameContinuations(c)
	f.record = s.records.add(c, f.predicted)
	f.Number = f.record.number
	f.Observe, f.Release = f.observe, f.release
	if !f.ep.IsRemote() {
		s.answerLocal(ch, f)
	}
	s.warmUp(c, f)
	s.traceChoice(c)
	took := s.opts.Now().Sub(c.Now)
	s.metrics.dispatched(took, c)
	s.reportSlow(took)
	return &f.Decision
}

// answerLocal adds what the rules say about requests to endpoints of this cluster.
func (s *Scheduler) answerLocal(ch chosen, f *flight) {
	if answer := ch.rules.Answer; answer != nil {
		f.AnswerHeaders = answer(ch.cycle, ch.cycle.Best())
	}
	if urgency := ch.rules.Urgency; urgency != nil {
		f.Priority, f.Prioritised = urgency(ch.cycle, f.Endpoints, f.predicted.Own)
	}
}
