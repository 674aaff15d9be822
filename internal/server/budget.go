package server

import "github.com/grapevine-epp/grapevine/internal/budget"

// openBudget divides the memory that the process may use.
func (s *Server) openBudget() {
	limit, source := s.o.Memory, "options"
	if limit == 0 {
		limit, source = budget.Memory()
	}
	s.budget = budget.New(limit)
	s.budget.Apply()
	s.registry.MustRegister(s.budget)
	s.o.Log.Info("memory budget", "bytes", s.budget.Limit(), "source", source)
}
