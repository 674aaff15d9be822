package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

type topologyParams struct {
	MinAffinity              string `json:"minAffinity"`
	LoadAllowance            *int64 `json:"loadAllowance,omitempty"`
	HostLabel                string `json:"hostLabel,omitempty"`
	TopologyProducerName     string `json:"topologyProducerName,omitempty"`
	InFlightLoadProducerName string `json:"inFlightLoadProducerName,omitempty"`
}

// topologyFilter keeps the endpoints near the previously chosen peer (the decode endpoint, when
// prefill is chosen). It keeps all if there is no peer, if none is near, and if the near ones are
// busier than the allowance.
type topologyFilter struct {
	labels    []string // of the levels that count as near
	allowance int64    // −1: no limit
}

func newTopology(p topologyParams) (plugin.Plugin, error) {
	f := topologyFilter{allowance: -1}
	if p.LoadAllowance != nil {
		f.allowance = *p.LoadAllowance
	}
	last := -1
	for i, level := range endpoint.Levels {
		if level.Name == p.MinAffinity {
			last = i
		}
	}
	for _, level := range endpoint.Levels[:last+1] {
		f.labels = append(f.labels, level.Label)
	}
	if p.HostLabel != "" && len(f.labels) > 0 {
		f.labels[0] = p.HostLabel
	}
	bind := func(labels plugin.TopologyLabels) plugin.Plugin {
		bound := f
		bound.labels = labels[:last+1]
		if p.HostLabel != "" && last >= 0 {
			bound.labels[0] = p.HostLabel
		}
		return plugin.Plugin{Filter: bound}
	}
	return plugin.Plugin{Filter: f, BindTopology: bind}, plugin.Faults(
		plugin.Require(last >= 0, "minAffinity", "must be host, rack, zone or region"),
		plugin.Require(p.LoadAllowance == nil || *p.LoadAllowance >= 0, "loadAllowance", "must not be negative"))
}

func (f topologyFilter) near(v *cycle.View, peer *endpoint.Endpoint) bool {
	return slices.ContainsFunc(f.labels, func(name string) bool {
		a, ok := peer.Label(name)
		b, _ := v.Label(name)
		return ok && a != "" && a == b
	})
}

// Filter implements cycle.Filter.
func (f topologyFilter) Filter(c *cycle.Cycle, keep []bool) {
	if c.Peer == nil {
		return
	}
	near, others := int64(-1), int64(-1) // minimum requests
	for k := range keep {
		v := c.At(k)
		keep[k] = f.near(v, c.Peer)
		least := &others
		if keep[k] {
			least = &near
		}
		if *least < 0 || v.Load.Requests < *least {
			*least = v.Load.Requests
		}
	}
	if near < 0 || (f.allowance >= 0 && others >= 0 && near-others > f.allowance) {
		for k := range keep {
			keep[k] = true
		}
	}
}
