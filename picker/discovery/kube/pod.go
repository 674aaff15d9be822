package kube

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
)

// pod is the relevant content of a Pod: a few hundred bytes of several thousand.
type pod struct {
	meta
	namespace string
	addr      netip.Addr // invalid: no address yet, or refused
	refused   string     // why the address is refused
	ready     bool       // and not terminating
	host      bool       // it uses its node's address, which other pods may share
	labels    map[string]string
	notes     map[string]string // the annotations that are read; nil if there are none
	starts    []start
}

// start is the restart count of the container that serves a port.
type start struct {
	port  uint16 // 0: any port that no container declares
	count int
}

// readPod reduces a Pod.
func (r addressRules) readPod(raw []byte) (pod, error) {
	var o struct {
		Metadata kubeapi.Meta `json:"metadata"`
		Spec     struct {
			HostNetwork bool `json:"hostNetwork"`
			Containers  []struct {
				Name  string `json:"name"`
				Ports []struct {
					Port uint16 `json:"containerPort"`
				} `json:"ports"`
			} `json:"containers"`
		} `json:"spec"`
		Status struct {
			IP  string `json:"podIP"`
			IPs []struct {
				IP string `json:"ip"`
			} `json:"podIPs"`
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
			Containers []struct {
				Name     string `json:"name"`
				Restarts int    `json:"restartCount"`
			} `json:"containerStatuses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return pod{}, err
	}
	m := &o.Metadata
	p := pod{meta: metaOf(*m), namespace: m.Namespace, labels: m.Labels, host: o.Spec.HostNetwork}
	var ips []string
	for _, x := range o.Status.IPs {
		ips = append(ips, x.IP)
	}
	p.addr, p.refused = r.choose(o.Status.IP, ips)
	for _, c := range o.Status.Conditions {
		p.ready = p.ready || c.Type == "Ready" && c.Status == "True" && m.Deleted == nil
	}
	for _, name := range kept {
		if v, ok := m.Annotations[name]; ok {
			if p.notes == nil {
				p.notes = map[string]string{}
			}
			p.notes[name] = v
		}
	}
	restarts, all := map[string]int{}, 0
	for _, c := range o.Status.Containers {
		restarts[c.Name] = c.Restarts
		all += c.Restarts
	}
	p.starts = append(p.starts, start{count: all})
	for _, c := range o.Spec.Containers {
		for _, port := range c.Ports {
			p.starts = append(p.starts, start{port: port.Port, count: restarts[c.Name]})
		}
	}
	return p, nil
}

// samePod reports whether two reads of a pod produce the same endpoints.
func samePod(a, b *pod) bool {
	if a.uid != b.uid || a.addr != b.addr || a.refused != b.refused || a.ready != b.ready || len(a.starts) != len(b.starts) {
		return false
	}
	for i := range a.starts {
		if a.starts[i] != b.starts[i] {
			return false
		}
	}
	return maps.Equal(a.labels, b.labels) && maps.Equal(a.notes, b.notes)
}

// life identifies an engine incarnation at a port: the pod, and the restart count of the container
// that serves the port. If no container declares the port, all restarts count.
func (p *pod) life(port uint16) string {
	count := p.starts[0].count
	for _, s := range p.starts[1:] {
		if s.port == port {
			count = s.count
			break
		}
	}
	return p.uid + "/" + strconv.Itoa(count)
}

// declares reports whether a container declares the port.
func (p *pod) declares(port uint16) bool {
	return slices.ContainsFunc(p.starts[1:], func(s start) bool { return s.port == port })
}

// note returns one of our annotations, or the label with that name if it is missing.
func (p *pod) note(name string) (string, bool) {
	v, ok := p.notes[name]
	if !ok {
		v, ok = p.labels[name]
	}
	return strings.TrimSpace(v), ok
}

// number returns a note that is a number within limits. problem is "" if it is absent or valid.
func (p *pod) number(name string, low, high, absent int) (n int, problem string) {
	v, ok := p.note(name)
	if !ok {
		return absent, ""
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return absent, name + " must be a number between " + strconv.Itoa(low) + " and " + strconv.Itoa(high) + ", not " + strconv.Quote(v) + "; the default applies"
	}
	return n, ""
}
