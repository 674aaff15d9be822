package pools

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// labelPool is the label of a pool's metrics.
const labelPool = "pool"

// labelled gathers the metrics of a pool, with the pool's name as a label.
type labelled struct {
	pool string
	of   prometheus.Gatherer
}

// Gather implements prometheus.Gatherer.
func (l labelled) Gather() ([]*dto.MetricFamily, error) {
	families, err := l.of.Gather() // a registry makes new ones each time
	name := labelPool
	for _, f := range families {
		for _, m := range f.Metric {
			at, _ := slices.BinarySearchFunc(m.Label, name, func(p *dto.LabelPair, name string) int { return strings.Compare(p.GetName(), name) })
			m.Label = slices.Insert(m.Label, at, &dto.LabelPair{Name: &name, Value: &l.pool})
		}
	}
	return families, err
}

// Gather returns the metrics of the process, and those of all open pools.
func (s *Server) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{s.registry}
	for _, p := range s.list() {
		if srv := p.server(); srv != nil {
			all = append(all, labelled{p.entry.Name, srv.Gatherer()})
		}
	}
	return all.Gather()
}
