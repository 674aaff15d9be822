package kube

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// maxRanks is the maximum number of ranks behind one port.
const maxRanks = 256

// found is the endpoints of a pool's pods.
type found struct {
	specs    []endpoint.Spec // sorted by address
	ready    int             // pods with endpoints
	unready  int             // pods without: not ready, terminating, or without a usable address
	refused  int             // ready pods whose address is refused
	doubled  int             // endpoints omitted because a newer pod has their address
	problems []podProblem    // invalid labels and annotations, sorted by pod
}

// podProblem is a mistake in one pod. It affects no other pod.
type podProblem struct{ pod, message string }

// specs returns the endpoints of pods for these target ports. events is the default for a pod's
// first port; each further port is another rank, one socket further.
func specs(pods []*pod, ports []uint16, events endpoint.Events) (f found) {
	// The newest pod with an address is the current one.
	slices.SortFunc(pods, func(a, b *pod) int {
		if c := a.created.Compare(b.created); c != 0 {
			return -c
		}
		return strings.Compare(a.uid, b.uid)
	})
	taken := make(map[netip.AddrPort]bool, len(pods)*len(ports))
	claims := claimed(pods, ports)
	for _, p := range pods {
		if p.ready && p.refused != "" {
			f.refused++
			f.complain(p, p.refused)
		}
		if !p.ready || !p.addr.IsValid() {
			f.unready++
			continue
		}
		f.ready++
		f.add(p, ports, events, taken, claims)
	}
	slices.SortFunc(f.specs, func(a, b endpoint.Spec) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(f.problems, func(a, b podProblem) int {
		return cmp.Or(strings.Compare(a.pod, b.pod), strings.Compare(a.message, b.message))
	})
	return f
}

// claimed returns the owners of node ports among pods that use their node's address: several pods
// share an address, and a port belongs to the pod that declares it.
func claimed(pods []*pod, ports []uint16) map[netip.AddrPort]*pod {
	var out map[netip.AddrPort]*pod
	for _, p := range pods {
		for _, port := range ports {
			if at := netip.AddrPortFrom(p.addr, port); p.host && p.ready && out[at] == nil && p.declares(port) {
				if out == nil {
					out = map[netip.AddrPort]*pod{}
				}
				out[at] = p
			}
		}
	}
	return out
}

// add adds the endpoints of one pod.
func (f *found) add(p *pod, ports []uint16, events endpoint.Events, taken map[netip.AddrPort]bool, claims map[netip.AddrPort]*pod) {
	base := endpoint.Spec{Namespace: p.namespace, Host: p.addr.String(), Labels: p.labels, Models: p.models()}
	events = f.events(p, events)
	metricsPort, problem := p.number(noteMetricsPort, 1, 65535, 0)
	f.complain(p, problem)
	path, _ := p.note(noteMetricsPath)
	active := p.active(ports)
	if len(active) == 0 {
		f.complain(p, activePorts+" lists none of the pool's target ports, so the pod has no endpoint")
	}
	for rank, port := range ports {
		at := netip.AddrPortFrom(p.addr, port)
		switch {
		case !slices.Contains(active, port):
			continue
		case p.host && claims[at] != nil && claims[at] != p && !p.declares(port):
			continue // of another pod on the node
		case taken[at]:
			f.doubled++
			continue
		}
		taken[at] = true
		s := base
		s.Name, s.Addr, s.Rank, s.Instance, s.Events = p.name, at, rank, p.life(port), events
		if len(ports) > 1 {
			s.Name += "-rank-" + strconv.Itoa(rank)
		}
		if metricsPort > 0 || path != "" {
			s.Metrics = metricsAt(p.addr, port, metricsPort, path)
		}
		if s.Events.Port > 0 {
			s.Events.Port += rank * s.Events.Ranks
			if s.Events.ReplayPort > 0 {
				s.Events.ReplayPort += rank * s.Events.Ranks
			}
		}
		f.specs = append(f.specs, s)
	}
}

func metricsAt(a netip.Addr, port uint16, other int, path string) string {
	at := int(port)
	if other > 0 {
		at = other
	}
	if path == "" {
		path = "metrics"
	}
	return "http://" + net.JoinHostPort(a.String(), strconv.Itoa(at)) + "/" + strings.TrimPrefix(path, "/")
}

// events returns where the pod's first port publishes.
func (f *found) events(p *pod, e endpoint.Events) endpoint.Events {
	read := func(into *int, name string, low, high int) {
		n, problem := p.number(name, low, high, *into)
		f.complain(p, problem)
		*into = n
	}
	read(&e.Port, noteEventsPort, 0, 65535)
	read(&e.ReplayPort, noteReplayPort, 0, 65535)
	read(&e.Ranks, noteEventsRanks, 1, maxRanks)
	if topic, ok := p.note(noteEventsTopic); ok {
		e.Topic = topic
	}
	if e.Port == 0 {
		return endpoint.Events{}
	}
	e.Ranks = max(e.Ranks, 1)
	return e
}

func (f *found) complain(p *pod, problem string) {
	if problem != "" {
		f.problems = append(f.problems, podProblem{p.name, problem})
	}
}

func (p *pod) models() (out []string) {
	v, _ := p.note(noteModels)
	for m := range strings.SplitSeq(v, ",") {
		if m = strings.TrimSpace(m); m != "" {
			out = append(out, m)
		}
	}
	return out
}

// active returns the target ports that the pod serves: all by default.
func (p *pod) active(ports []uint16) []uint16 {
	v, said := p.notes[activePorts]
	if !said {
		v, said = p.notes[activePortsOld]
	}
	if !said {
		return ports
	}
	var out []uint16
	for s := range strings.SplitSeq(v, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
		if err == nil && slices.Contains(ports, uint16(n)) {
			out = append(out, uint16(n))
		}
	}
	return out
}
