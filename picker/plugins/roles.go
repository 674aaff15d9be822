package plugins

import "github.com/grapevine-epp/grapevine/picker"

// roleFilter keeps the endpoints that serve a phase, by their role label.
type roleFilter picker.Role

// Filter implements picker.Filter.
func (f roleFilter) Filter(c *picker.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = c.At(k).Role&picker.Role(f) != 0
	}
}
