package server

import (
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
)

// registerProcess registers the metrics of the process.
func (s *Server) registerProcess() error {
	RegisterRuntime(s.registry)
	if s.o.LogWriter == nil {
		return nil
	}
	return s.o.LogWriter.Register(s.registry)
}

// RegisterRuntime registers the metrics of the Go runtime and of the process.
func RegisterRuntime(r prometheus.Registerer) {
	live := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)} // the live heap, the lower bound of the heap's sawtooth
	r.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(live)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// openBudget divides the process's memory limit, unless several pools share it.
func (s *Server) openBudget() {
	if sh := s.o.Shared; sh != nil {
		s.budget = sh.Budget
		s.registry.MustRegister(s.budget)
		s.listeners = budget.NewListenersOf(sh.Files, s.budget, s.registry)
		return
	}
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
func indexOptions(hasher block.Hasher, b *budget.Budget) indexer.Options {
	o := indexer.Options{Hasher: hasher}
	if share := b.Share(budget.Index); share > 0 {
		o.MaxNodes = int(min(max(share/blockMemory, 1<<16), 64<<20))
		o.MaxSourceBlocks = min(o.MaxNodes, 16<<20)
	}
	return o
}
