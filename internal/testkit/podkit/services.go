package podkit

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"strings"
)

// service holds the fields of a Service that the kit reads.
type service struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		ClusterIP string            `json:"clusterIP"`
		Selector  map[string]string `json:"selector"`
		NotReady  bool              `json:"publishNotReadyAddresses"`
		Ports     []servicePort     `json:"ports"`
	} `json:"spec"`
}

type servicePort struct {
	Port     int             `json:"port"`
	Target   json.RawMessage `json:"targetPort"`
	Protocol string          `json:"protocol"`
}

// Expose makes the Services of a namespace reachable. Their pods may start and stop later.
func (k *Kit) Expose(namespace string) {
	k.tb.Helper()
	var list struct {
		Items []*service `json:"items"`
	}
	if err := json.Unmarshal([]byte(k.c.Kubectl("get", "services", "-n", namespace, "-o", "json")), &list); err != nil {
		k.tb.Fatal(err)
	}
	for _, s := range list.Items {
		k.mu.Lock()
		k.services[s.Metadata.Name+"."+namespace] = s
		k.mu.Unlock()
		if s.Spec.ClusterIP == "None" || len(s.Spec.Selector) == 0 {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Protocol == "TCP" {
				k.listen(s.Spec.ClusterIP, p.Port)
			}
		}
	}
}

// listen forwards connections to a port of a cluster address.
func (k *Kit) listen(address string, port int) {
	k.tb.Helper()
	at := net.JoinHostPort(address, strconv.Itoa(port))
	network.mu.Lock()
	taken := network.taken[at]
	network.taken[at] = true
	network.mu.Unlock()
	if taken { // another cluster's Service has the same address; the client's cluster decides
		return
	}
	_ = ip("addr add " + address + "/32 dev pods") // another port of the Service may have added it
	l, err := net.Listen("tcp", at)
	if err != nil {
		k.tb.Fatal(err)
	}
	go forward(l, func(k *Kit) string { return k.backend(address, port) })
}

// Balance makes the first port of a Service reachable at an address of [NodeAddress], as a load
// balancer does.
func (k *Kit) Balance(namespace, name, address string) {
	k.tb.Helper()
	k.mu.Lock()
	s := k.services[name+"."+namespace]
	k.mu.Unlock()
	if s == nil || len(s.Spec.Ports) == 0 {
		k.tb.Fatalf("Service %s/%s is not exposed or has no port", namespace, name)
	}
	port := s.Spec.Ports[0].Port
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	k.must(err)
	k.tb.Cleanup(func() { l.Close() })
	go forward(l, func(*Kit) string { return k.backend(s.Spec.ClusterIP, port) })
}

// backend returns the address of the next ready pod for a cluster address and port, or "".
func (k *Kit) backend(address string, port int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.services {
		if s.Spec.ClusterIP != address {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Port != port {
				continue
			}
			list := k.podsOf(s)
			if len(list) == 0 {
				return ""
			}
			k.turn++
			pod := list[k.turn%len(list)]
			return net.JoinHostPort(pod.IP, strconv.Itoa(pod.port(p)))
		}
	}
	return ""
}

// podsOf returns the pods that a Service sends to. The caller holds k.mu.
func (k *Kit) podsOf(s *service) (list []*Pod) {
	for _, p := range k.pods {
		matches := p.Namespace == s.Metadata.Namespace && (p.ready || s.Spec.NotReady)
		for name, value := range s.Spec.Selector {
			matches = matches && p.labels[name] == value
		}
		if matches {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Pod) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// port returns the pod's port for a port of a Service.
func (p *Pod) port(s servicePort) int {
	var number int
	if json.Unmarshal(s.Target, &number) == nil && number != 0 {
		return number
	}
	var name string
	_ = json.Unmarshal(s.Target, &name) // a number or a name
	for i := range p.spec.Containers {
		for _, c := range p.spec.Containers[i].Ports {
			if c.Name == name && name != "" {
				return c.Port
			}
		}
	}
	return s.Port
}

// resolve returns the addresses of a Service by its DNS name.
func (k *Kit) resolve(name string) (addresses []string, found bool) {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), "."), ".cluster.local")
	name, isService := strings.CutSuffix(name, ".svc")
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.services[name]
	if !isService || s == nil {
		return nil, false
	}
	if s.Spec.ClusterIP != "None" {
		return []string{s.Spec.ClusterIP}, true
	}
	for _, p := range k.podsOf(s) {
		addresses = append(addresses, p.IP)
	}
	return addresses, len(addresses) > 0
}
