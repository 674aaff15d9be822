package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// Status is the visible state of a Controller.
type Status struct {
	Pools    []PoolStatus   `json:"pools,omitempty"`
	Imports  []ImportStatus `json:"imports,omitempty"`
	Problems []string       `json:"problems,omitempty"`
	Waiting  int            `json:"waiting,omitempty"` // objects that still differ from the plan
}

// PoolStatus is one of our pools with the annotation, as its object shows it.
type PoolStatus struct {
	Name     string    `json:"name"`
	Exported string    `json:"exported"` // True, False, or "" if the object has no condition
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// ImportStatus is an import, as its object shows it.
type ImportStatus struct {
	Name     string   `json:"name"`
	Clusters []string `json:"clusters"`
	Accepted string   `json:"accepted"`
	Message  string   `json:"message,omitempty"`
}

// state is the data behind Status.
type state struct {
	Status
	exported, imports, over int
}

// Status returns the objects' state as last read, and problems.
func (c *Controller) Status() Status {
	c.mu.Lock()
	s := c.state.Status
	c.mu.Unlock()
	s.Problems = slices.Concat(readProblems("InferencePools", c.pools.State()), readProblems(kindImport+"s", c.imports.State()), s.Problems)
	return s
}

// readProblems returns why objects cannot be read.
func readProblems(about string, st kubeapi.State) []string {
	switch {
	case st.Absent():
		return []string{about + ": the kind is not installed, waiting for it"}
	case kubeapi.IsForbidden(st.Err):
		return []string{fmt.Sprintf("%s: %v", about, st.Err)}
	case st.Err != nil:
		return []string{fmt.Sprintf("%s: unreadable since %s, the last known state stays in use: %v", about, st.Since.UTC().Format(time.RFC3339), st.Err)}
	case st.Watch != nil:
		return []string{fmt.Sprintf("%s: listed every few seconds instead of watched: %v", about, st.Watch)}
	}
	return nil
}

// show stores the result of a round.
func (c *Controller) show(f *facts, p *plan, r rounds) {
	s := state{Status: Status{Waiting: r.waiting}, over: len(f.over)}
	for _, x := range f.over[:min(len(f.over), 1)] {
		s.Problems = append(s.Problems, fmt.Sprintf("%d exports are not imported, the first is %s of %s: the limit is %d pools per cluster", len(f.over), x.Name, x.cluster, f.limit))
	}
	for n := range p.parents {
		o := f.pools[n]
		if !o.asked {
			continue
		}
		out := PoolStatus{Name: n.String()}
		if o.entry != nil {
			if c, ok := conditionOf(o.entry.Conditions, typeExported); ok {
				out.Exported, out.Reason, out.Message, out.Since = c.Status, c.Reason, c.Message, c.Since
			}
		}
		if out.Exported == "True" {
			s.exported++
		}
		s.Pools = append(s.Pools, out)
	}
	for n, i := range f.imports {
		if i.entry == nil {
			continue
		}
		out := ImportStatus{Name: n.String()}
		for _, e := range i.entry.Clusters {
			out.Clusters = append(out.Clusters, e.Name)
		}
		if c, ok := conditionOf(i.entry.Conditions, typeAccepted); ok {
			out.Accepted, out.Message = c.Status, c.Message
		}
		s.imports++
		s.Imports = append(s.Imports, out)
	}
	slices.SortFunc(s.Pools, func(a, b PoolStatus) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Imports, func(a, b ImportStatus) int { return cmp.Compare(a.Name, b.Name) })
	for o, pace := range c.paces {
		if pace.err != nil && !errors.Is(pace.err, errMoved) {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %v", o, pace.err))
		}
	}
	slices.Sort(s.Problems)
	c.mu.Lock()
	c.state = s
	c.mu.Unlock()
}

// counts are the controller's counters.
type counts struct {
	writes                          *prometheus.CounterVec
	conflicts, reasserted, failures prometheus.Counter
}

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "grapevine", Subsystem: "federation_objects", Name: name, Help: help})
	}
	c := &counts{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "grapevine", Subsystem: "federation_objects", Name: "writes_total",
			Help: "Changes written to Kubernetes objects of the federation, by what was changed: pool (the status of an InferencePool) or import (an InferencePoolImport)."}, []string{"object"}),
		conflicts:  counter("conflicts_total", "Writes that the API server rejected because of a concurrent write; each was retried on the new version."),
		reasserted: counter("reasserted_total", "Entries that another writer overwrote and that were written again."),
		failures:   counter("failures_total", "Failed writes, for example because of a missing permission; they are retried."),
	}
	for _, object := range []string{"pool", "import"} {
		c.writes.WithLabelValues(object)
	}
	return c
}

// register registers the controller's metrics.
func (c *Controller) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, value func(*state) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "grapevine", Subsystem: "federation_objects", Name: name, Help: help}, func() float64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return float64(value(&c.state))
		})
	}
	n := c.writer.counts
	for _, m := range []prometheus.Collector{n.writes, n.conflicts, n.reasserted, n.failures,
		gauge("exported", "Pools whose status says that they are exported to every cluster.", func(s *state) int { return s.exported }),
		gauge("imports", "InferencePoolImports with an entry of this cluster.", func(s *state) int { return s.imports }),
		gauge("refused_exports", "Pools of other clusters without an import because their cluster exports too many.", func(s *state) int { return s.over }),
		gauge("waiting", "Objects whose content is not up to date yet.", func(s *state) int { return s.Waiting }),
	} {
		if err := reg.Register(m); err != nil {
			return err
		}
	}
	return nil
}
