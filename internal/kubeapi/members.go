package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// serviceLabel is the Service label of an EndpointSlice.
const serviceLabel = "kubernetes.io/service-name"

// maxMembers is the maximum number of a Service's addresses.
const maxMembers = 1000

var endpointSlices = Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}

// MembersOptions select the Service to follow. Service is required.
type MembersOptions struct {
	Service   string // its name
	Namespace string // "": from the configuration, else default
	PortName  string // name of the Service's port
	Port      int    // used if the Service has no port with that name

	Self  string     // name of this process's pod, which is excluded; "": unknown
	Like  netip.Addr // selects the address family for pods with several; invalid: IPv4
	Agent string     // user agent in the server's logs
	Log   *slog.Logger
}

// Members are the addresses of the pods behind a Service, from its EndpointSlices. Pods that are
// not ready are included; terminating ones only if there are no others.
type Members struct {
	o       MembersOptions
	client  *Client
	slices  *Follower[endpointSlice]
	changed chan struct{}
	read    chan struct{} // closed once the slices were read, or failed
}

// FollowMembers follows the EndpointSlices of a Service until Close.
func FollowMembers(c Config, o MembersOptions) (*Members, error) {
	if !serviceName(o.Service) {
		return nil, fmt.Errorf("kubeapi: %q is not the name of a Service", o.Service)
	}
	o.Namespace = cmp.Or(o.Namespace, c.Namespace, "default")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	client, err := NewClient(c, o.Agent)
	if err != nil {
		return nil, err
	}
	m := &Members{o: o, client: client, changed: make(chan struct{}, 1), read: make(chan struct{}, 1)}
	m.slices = Follow(client, Kind[endpointSlice]{
		Resource: endpointSlices, Read: readSlice, Same: sameSlice,
		Key: func(s *endpointSlice) (string, string) { return s.name, s.version },
	}, View{Namespace: o.Namespace, Labels: serviceLabel + "=" + o.Service}, o.Log, m.moved)
	return m, nil
}

// serviceName reports whether s is a valid Service name.
func serviceName(s string) bool {
	return s != "" && len(s) <= 63 && !strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// Close stops following.
func (m *Members) Close() {
	m.slices.Close()
	m.client.Close()
}

// MissingRights returns the missing rules for reading the slices.
func (m *Members) MissingRights() []string {
	st := m.slices.State()
	return MissingRights(st.Err, st.Watch)
}

// Changed signals that Addresses may return something new.
func (m *Members) Changed() <-chan struct{} { return m.changed }

func (m *Members) moved() {
	for _, c := range []chan struct{}{m.changed, m.read} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Addresses returns one host:port address for every pod except this one. It waits for the first
// read until ctx ends. With an error it returns the last known addresses.
func (m *Members) Addresses(ctx context.Context) ([]string, error) {
	for {
		s := m.slices.State()
		if s.Listed || s.Err != nil {
			return membersOf(m.slices.Items(), &m.o), m.fault(s)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("EndpointSlices of %s/%s: %w", m.o.Namespace, m.o.Service, ctx.Err())
		case <-m.read:
		case <-time.After(100 * time.Millisecond): // another caller may have received the signal
		}
	}
}

func (m *Members) fault(s State) error {
	err := s.Err
	if err == nil {
		err = s.Watch
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("EndpointSlices of %s/%s: %w", m.o.Namespace, m.o.Service, err)
}

// endpointSlice is the relevant content of an EndpointSlice.
type endpointSlice struct {
	name, version string
	ports         map[string]int // by name, TCP only
	members       []member
}

// member is one endpoint of a slice.
type member struct {
	pod         string // name, "" if unknown
	addr        netip.Addr
	terminating bool
}

func sameSlice(a, b *endpointSlice) bool {
	return maps.Equal(a.ports, b.ports) && slices.Equal(a.members, b.members)
}

// readSlice reduces an EndpointSlice.
func readSlice(raw []byte) (endpointSlice, error) {
	var o struct {
		Metadata  Meta   `json:"metadata"`
		Type      string `json:"addressType"`
		Endpoints []struct {
			Addresses  []string `json:"addresses"`
			Conditions struct {
				Terminating bool `json:"terminating"`
			} `json:"conditions"`
			Target struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"targetRef"`
		} `json:"endpoints"`
		Ports []struct {
			Name     string `json:"name"`
			Port     int    `json:"port"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return endpointSlice{}, err
	}
	s := endpointSlice{name: o.Metadata.Name, version: o.Metadata.ResourceVersion, ports: map[string]int{}}
	for _, p := range o.Ports {
		if (p.Protocol == "" || p.Protocol == "TCP") && p.Port > 0 && p.Port <= 65535 {
			s.ports[p.Name] = p.Port
		}
	}
	for _, e := range o.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		// Only the first address has a defined meaning.
		addr, err := netip.ParseAddr(e.Addresses[0])
		if addr = addr.Unmap(); err != nil || addr.IsUnspecified() || addr.IsMulticast() { // a name, in a slice of type FQDN
			continue
		}
		x := member{addr: addr, terminating: e.Conditions.Terminating}
		if e.Target.Kind == "Pod" {
			x.pod = e.Target.Name
		}
		s.members = append(s.members, x)
	}
	return s, nil
}

// reached is one pod's address.
type reached struct {
	at   netip.AddrPort
	live bool // not terminating in at least one of its slices
}

// membersOf returns one address for every pod in the slices except Self. A pod may be in several
// slices: of both families, or briefly while it moves between slices.
func membersOf(list []*endpointSlice, o *MembersOptions) []string {
	of, anyLive := map[string]reached{}, false
	for _, s := range list {
		port, ok := s.ports[o.PortName]
		if !ok {
			port = o.Port
		}
		for _, x := range s.members {
			if x.pod != "" && x.pod == o.Self {
				continue
			}
			r := reached{netip.AddrPortFrom(x.addr, uint16(port)), !x.terminating}
			id := cmp.Or(x.pod, x.addr.String())
			if old, ok := of[id]; ok {
				r.live = r.live || old.live
				if !o.rather(r.at, old.at) {
					r.at = old.at
				}
			}
			of[id] = r
			anyLive = anyLive || r.live
		}
	}
	var out []string
	for _, r := range of {
		if r.live || !anyLive {
			out = append(out, r.at.String())
		}
	}
	slices.Sort(out)
	out = slices.Compact(out) // several pods on one host
	return out[:min(len(out), maxMembers)]
}

// rather reports whether a is preferred over b for a pod.
func (o *MembersOptions) rather(a, b netip.AddrPort) bool {
	four := !o.Like.IsValid() || o.Like.Unmap().Is4()
	if is := a.Addr().Is4() == four; is != (b.Addr().Is4() == four) {
		return is
	}
	return a.Compare(b) < 0
}
