package discovery

import (
	"maps"
	"net"
	"net/netip"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Problem is one error in an endpoints file.
type Problem = strict.Problem

// Endpoint is one entry of an endpoints file with defaults applied. It is one endpoint if Host is
// an address, and one per address if it is a name. Engine is also in Labels, under
// endpoint.LabelEngine.
type Endpoint struct {
	Name      string
	Namespace string
	Host      string // IP address without brackets, or host name
	Port      uint16
	Labels    map[string]string
	Models    []string
	Engine    endpoint.EngineType // EngineUnknown: to be detected from its metrics
	Events    endpoint.Events     // zero: not configured, so the engine is queried
	Metrics   string              // URL; "" for /metrics at the endpoint's address
	Line      int                 // first line of the entry
}

// Addr returns the address if Host is one, or false if it is a name.
func (e *Endpoint) Addr() (netip.Addr, bool) {
	a, err := netip.ParseAddr(e.Host)
	return a.Unmap(), err == nil
}

// HostPort returns host:port, IPv6 in brackets.
func (e *Endpoint) HostPort() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Spec returns the entry's spec for one address of its host. The result shares no memory with the
// entry.
func (e *Endpoint) Spec(addr netip.Addr) endpoint.Spec {
	return endpoint.Spec{
		Name: e.Name, Namespace: e.Namespace, Host: e.Host,
		Addr:   netip.AddrPortFrom(addr.Unmap(), e.Port),
		Labels: maps.Clone(e.Labels), Models: append([]string(nil), e.Models...),
		Events: e.Events, Metrics: e.Metrics,
	}
}
