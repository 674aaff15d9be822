package picker

import (
	"slices"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// admitted is a request whose model is known, or may be unknown.
type admitted struct{ resolved }

// admit rejects requests whose model is missing although it matters. It counts requests that any
// model may serve.
func (s *Scheduler) admit(res resolved) (admitted, error) {
	if err := s.requireModel(res.request); err != nil {
		return admitted{}, err
	}
	if res.request.Target == "" {
		s.countModelless(res.request)
	}
	return admitted{res}, nil
}

// requireModel sets the model of a request whose body names none, as engines allow, if the pool
// serves a single model. With several models the chosen engine must not decide, except for
// /generate, whose bodies never name a model.
func (s *Scheduler) requireModel(r *request.Request) error {
	if !r.NoModel || r.Kind == request.KindOther {
		return nil
	}
	base, several := s.opts.Pool.Snapshot().OnlyBase()
	if r.Kind != request.KindGenerate {
		switch {
		case r.Target != "":
			return request.Errorf(request.ReasonBadRequest, "request body has no model that could be rewritten")
		case several:
			return request.Errorf(request.ReasonBadRequest, "request body has no model, and the pool serves several")
		}
	}
	if r.Target == "" {
		r.Model, r.Target = base, base
	}
	return nil
}

// maxModelless bounds the number of logged paths.
const maxModelless = 16

// countModelless counts a request without a model in a pool of several models, and logs its path
// once.
func (s *Scheduler) countModelless(r *request.Request) {
	if _, several := s.opts.Pool.Snapshot().OnlyBase(); !several {
		return
	}
	s.metrics.modelless.Inc()
	s.modelless.total.Add(1)
	if s.modelless.n.Load() >= maxModelless {
		return
	}
	if _, logged := s.modelless.paths.LoadOrStore(budget.PrintableName(r.Path), true); !logged {
		s.modelless.n.Add(1)
		s.opts.Log.Warn("request without a model in a pool of several models: any engine may receive it", "path", budget.PrintableName(r.Path))
	}
}

// Modelless returns the number of requests without a model in a pool of several models, and the first
// of their paths in alphabetical order.
func (s *Scheduler) Modelless() (requests uint64, paths []string) {
	s.modelless.paths.Range(func(path, _ any) bool {
		paths = append(paths, path.(string))
		return true
	})
	slices.Sort(paths)
	return s.modelless.total.Load(), paths
}
