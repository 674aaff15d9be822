package plugins

import (
	"slices"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// roleFilter keeps the endpoints whose role label includes a phase.
type roleFilter endpoint.Role

// choosesRole reports whether a filter selects endpoints by role label.
func choosesRole(f cycle.Filter) bool {
	switch f := f.(type) {
	case roleFilter:
		return true
	case byLabel:
		return f.Label == endpoint.LabelRole
	case selector:
		return slices.ContainsFunc(f.terms, func(e labelTerm) bool { return e.Key == endpoint.LabelRole })
	default:
		return false
	}
}

// Filter implements cycle.Filter.
func (f roleFilter) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = c.At(k).Role&endpoint.Role(f) != 0
	}
}
