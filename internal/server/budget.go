package server

import (
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// openBudget divides the process's memory limit.
func (s *Server) openBudget() {
	limit, source := s.o.Memory, "options"
	if limit == 0 {
		limit, source = budget.Memory()
	}
	s.budget = budget.New(limit)
	s.budget.Apply()
	s.registry.MustRegister(s.budget)
	s.listeners = budget.NewListeners(s.budget, s.registry)
	s.o.Log.Info("memory budget", "bytes", s.budget.Limit(), "source", source)
}

// blockMemory is the approximate memory of a block in the index, in bytes: its node, and its name
// at one source.
const blockMemory = 64

// indexOptions limits the index to its share of memory.
func (s *Server) indexOptions() indexer.Options {
	o := indexer.Options{Hasher: s.hasher}
	if share := s.budget.Share(budget.Index); share > 0 {
		o.MaxNodes = int(min(max(share/blockMemory, 1<<16), 64<<20))
		o.MaxSourceBlocks = min(o.MaxNodes, 16<<20)
	}
	return o
}
