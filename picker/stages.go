package picker

import (
	"context"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// Choose implements Chooser. r must be a result of request.Parse; Choose fills in the fields that
// depend on the configuration and the prompt. Before any other work it waits for fresh model lists
// if no known endpoint serves r's model, and then for the Gate.
func (s *Scheduler) Choose(ctx context.Context, r *request.Request) (*request.Decision, error) {
	d, err := s.serve(ctx, r)
	if err != nil {
		s.metrics.refused(r, err)
		return nil, err
	}
	return d, nil
}

// serve passes r through the stages until its decision. Each stage has a file of its name, and
// takes the result of the previous stage. After the decision, its callbacks observe the response
// (observe.go).
//
// Only the wait may block for long. It returns when the request has a permit. With federation, it
// also returns while the request waits, and after a refusal, if a remote cluster may be better. The
// request then stays in the queue unless dispatch finds such a cluster.
func (s *Scheduler) serve(ctx context.Context, r *request.Request) (*request.Decision, error) {
	res := s.resolve(r, s.rules.Load(), s.nextSeed())
	adm, err := s.admit(res)
	if err != nil {
		return nil, err
	}
	q := s.enqueue(ctx, adm)
	for {
		cl, err := s.wait(ctx, &q)
		if err != nil {
			return nil, err
		}
		d, err := s.dispatch(ctx, cl)
		if err == nil {
			q.withdraw()
			return d, nil
		}
		if !q.waiting() {
			s.opts.Gate.Leave(cl.permit, -1)
			return nil, cl.reason(err)
		}
	}
}

// dispatch passes a request through the stages after the wait. Their work is bounded by
// WorkTimeout.
func (s *Scheduler) dispatch(ctx context.Context, cl cleared) (*request.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.WorkTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return nil, request.Errorf(request.ReasonCancelled, "the client disconnected")
	}
	now := s.opts.Now()
	s.unseen.Expire(now) // the candidates' loads depend on it
	p := s.prepare(ctx, cl, now)
	defer s.free(p)
	ch, err := s.choose(ctx, p)
	if err != nil {
		s.recordRefusal(p, err)
		return nil, err
	}
	return s.answer(ch, s.book(ch)), nil
}
