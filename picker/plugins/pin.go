package plugins

import (
	"net/netip"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Request headers that name the only endpoint to use, as ip:port.
const (
	headerEndpointPin = "x-llm-d-pin-host-port"
	headerPrefillPin  = "x-prefill-pin"
)

// pin keeps the endpoint that a request header names. Without the header it keeps all. A value that
// is no ip:port, or names no candidate, keeps none.
type pin struct{ header string }

// newPin returns the factory of a pin screener. It applies to every profile.
func newPin(header string) func(*plugin.Params) (plugin.Plugin, error) {
	return plugin.Fixed(plugin.Plugin{Filter: pin{header}, Screens: true})
}

// Filter implements cycle.Filter.
func (p pin) Filter(c *cycle.Cycle, keep []bool) {
	if c.Request.Headers == nil {
		return
	}
	value := c.Request.Headers.Get(p.header)
	if value == "" {
		return
	}
	want, err := netip.ParseAddrPort(value)
	for k := range keep {
		at := c.At(k).Addr
		keep[k] = err == nil && at.Port() == want.Port() && at.Addr().Unmap() == want.Addr().Unmap()
	}
}
