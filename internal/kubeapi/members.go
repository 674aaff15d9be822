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

// serviceLabel is on every EndpointSlice of a Service.
const serviceLabel = "kubernetes.io/service-name"

// maxMembers bounds the addresses of a Service that are told.
const maxMembers = 1000

var endpointSlices = Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}

// MembersOptions say whose addresses are followed. Service is required.
type MembersOptions struct {
	Service   string // its name
	Namespace string // "": that of the configuration, else default
	PortName  string // of the Service's port that counts
	Port      int    // where the Service has no port of that name

	Self  string     // name of the pod that this process is, which is left out; "": unknown
	Like  netip.Addr // of pods with several addresses, the one of this one's family; invalid: IPv4
	Agent string     // names us in the server's logs
	Log   *slog.Logger
}

// Members are the addresses of the pods behind a Service, as its EndpointSlices have
// them: those that are not ready too, and those that terminate only while there are no
// others.
type Members struct {
	o       MembersOptions
	client  *Client
	slices  *Follower[endpointSlice]
	changed chan struct{}
	read    chan struct{} // the slices, or why they cannot be
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

// serviceName holds for names that a Service can have.
func serviceName(s string) bool {
	return s != "" && len(s) <= 63 && !strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// Close stops following.
func (m *Members) Close() {
	m.slices.Close()
	m.client.Close()
}

// Changed says that Addresses may have something new to tell.
func (m *Members) Changed() <-chan struct{} { return m.changed }

func (m *Members) moved() {
	for _, c := range []chan struct{}{m.changed, m.read} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Addresses returns one address, host:port, of every pod but this one. It waits for
// the first reading until ctx ends. With an error they are what was known last.
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
		case <-time.After(100 * time.Millisecond): // another caller may have taken the word
		}
	}
}

func (m *Members) fault(s State) error {
	if s.Err == nil {
		return nil
	}
	return fmt.Errorf("EndpointSlices of %s/%s: %w", m.o.Namespace, m.o.Service, s.Err)
}

// endpointSlice is what is kept of an EndpointSlice.
type endpointSlice struct {
	name, version string
	ports         map[string]int // by name, TCP alone
	members       []member
}

// member is one endpoint of a slice.
type member struct {
	pod         string // name, "" where the slice does not say
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
		// The first one alone: what further ones mean is not defined.
		addr, err := netip.ParseAddr(e.Addresses[0])
		if addr = addr.Unmap(); err != nil || addr.IsUnspecified() || addr.IsMulticast() { // a name, of a slice of type FQDN
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

// reached is where one pod can be asked.
type reached struct {
	at   netip.AddrPort
	live bool // not terminating in one of the slices that have it
}

// membersOf returns one address of every pod in the slices but Self. A pod may be in
// several of them: of both families, or for a moment while it moves from one to another.
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
	out = slices.Compact(out) // several pods of one host
	return out[:min(len(out), maxMembers)]
}

// rather reports whether a is to be asked rather than b, of one pod.
func (o *MembersOptions) rather(a, b netip.AddrPort) bool {
	four := !o.Like.IsValid() || o.Like.Unmap().Is4()
	if is := a.Addr().Is4() == four; is != (b.Addr().Is4() == four) {
		return is
	}
	return a.Compare(b) < 0
}
