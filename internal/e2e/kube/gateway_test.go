//go:build kube

package kube

import (
	"maps"
	"slices"
)

// The gateway: statuses, and the configuration that a control plane renders.

const controller = "grapevine.example/stub"

// target is the resolved backend of a rule.
type target struct {
	pool  *pool
	found bool // the pool exists
	whole bool // the Service of its picker exists
}

// route accepts routes of gateways and configures Envoy accordingly.
func (s *stub) route() {
	parents := map[string][]any{} // statuses of pools by id
	for i := range s.gateways {
		g := &s.gateways[i]
		hosts := map[string][]any{}
		attached := 0
		for j := range s.routes {
			r := &s.routes[j]
			if !r.attached(g) {
				continue
			}
			attached++
			for _, id := range s.poolsOf(r) {
				parents[id] = s.parent(parents[id], g, id)
			}
			rules := s.rules(r)
			for _, host := range r.hosts() {
				hosts[host] = append(hosts[host], rules...)
			}
		}
		s.acceptGateway(g, i, attached)
		s.envoy.routes(g.Meta.Name, hosts)
	}
	for i := range s.routes {
		s.acceptRoute(&s.routes[i])
	}
	var clusters []any
	for i := range s.pools {
		p := &s.pools[i]
		list := parents[p.Meta.id()]
		if list == nil {
			list = []any{}
		}
		if key := pools.Plural + " " + p.Meta.id() + " " + p.Meta.UID; len(list) > 0 || s.written[key] != "" {
			s.status(pools, p.Meta, map[string]any{"parents": list})
		}
		clusters = append(clusters, s.clusters(p)...)
	}
	s.envoy.clusters(clusters)
}

func (r *route) attached(g *gateway) bool {
	for _, ref := range r.Spec.ParentRefs {
		if ref.Name == g.Meta.Name && (ref.Namespace == g.Meta.Namespace || ref.Namespace == "" && r.Meta.Namespace == g.Meta.Namespace) {
			return true
		}
	}
	return false
}

func (r *route) hosts() []string {
	if len(r.Spec.Hostnames) == 0 {
		return []string{"*"}
	}
	return r.Spec.Hostnames
}

// target resolves a backend to its pool. It ignores the backend's port.
func (s *stub) target(r *route, b *backend) (t target) {
	for i := range s.pools {
		p := &s.pools[i]
		if b.Kind != "InferencePool" || p.Meta.Namespace != r.Meta.Namespace || p.Meta.Name != b.Name {
			continue
		}
		t = target{pool: p, found: true}
		for j := range s.services {
			svc := &s.services[j]
			t.whole = t.whole || p.Spec.Picker != nil && svc.Meta.Namespace == p.Meta.Namespace && svc.Meta.Name == p.Spec.Picker.Name
		}
	}
	return t
}

func (s *stub) poolsOf(r *route) (ids []string) {
	for i := range r.Spec.Rules {
		for j := range r.Spec.Rules[i].Backends {
			if t := s.target(r, &r.Spec.Rules[i].Backends[j]); t.found && !slices.Contains(ids, t.pool.Meta.id()) {
				ids = append(ids, t.pool.Meta.id())
			}
		}
	}
	return ids
}

// parent adds a gateway's entry to a pool's status.
func (s *stub) parent(list []any, g *gateway, id string) []any {
	for _, have := range list {
		if have.(map[string]any)["parentRef"].(map[string]any)["name"] == g.Meta.Name {
			return list
		}
	}
	at := slices.IndexFunc(s.pools, func(p pool) bool { return p.Meta.id() == id })
	p := &s.pools[at]
	accepted, resolved := s.condition("Accepted", "True", "Accepted", p.Meta), s.condition("ResolvedRefs", "True", "ResolvedRefs", p.Meta)
	fake := &route{Meta: p.Meta}
	switch t := s.target(fake, &backend{Kind: "InferencePool", Name: p.Meta.Name}); {
	case p.Spec.Picker == nil:
		accepted = s.condition("Accepted", "False", "EndpointPickerRefMissing", p.Meta)
	case !t.whole:
		resolved = s.condition("ResolvedRefs", "False", "InvalidExtensionRef", p.Meta)
	}
	return append(list, map[string]any{
		"parentRef":      map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": g.Meta.Name, "namespace": g.Meta.Namespace},
		"controllerName": controller, "conditions": []any{accepted, resolved},
	})
}

func (s *stub) acceptGateway(g *gateway, n, attached int) {
	var listeners []any
	for _, l := range g.Spec.Listeners {
		listeners = append(listeners, map[string]any{
			"name": l.Name, "attachedRoutes": attached, "supportedKinds": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}},
			"conditions": []any{s.condition("Accepted", "True", "Accepted", g.Meta), s.condition("Programmed", "True", "Programmed", g.Meta), s.condition("ResolvedRefs", "True", "ResolvedRefs", g.Meta)},
		})
	}
	s.status(gateways, g.Meta, map[string]any{
		"conditions": []any{s.condition("Accepted", "True", "Accepted", g.Meta), s.condition("Programmed", "True", "Programmed", g.Meta)},
		"listeners":  listeners, "addresses": []any{map[string]any{"type": "IPAddress", "value": s.envoy.listen(g.Meta.Name, n)}},
	})
}

func (s *stub) acceptRoute(r *route) {
	resolved := s.condition("ResolvedRefs", "True", "ResolvedRefs", r.Meta)
	for i := range r.Spec.Rules {
		for j := range r.Spec.Rules[i].Backends {
			if !s.target(r, &r.Spec.Rules[i].Backends[j]).found {
				resolved = s.condition("ResolvedRefs", "False", "BackendNotFound", r.Meta)
			}
		}
	}
	var list []any
	for i := range s.gateways {
		if g := &s.gateways[i]; r.attached(g) {
			ref := map[string]any{"name": g.Meta.Name, "namespace": g.Meta.Namespace}
			list = append(list, map[string]any{"parentRef": ref, "controllerName": controller, "conditions": []any{s.condition("Accepted", "True", "Accepted", r.Meta), resolved}})
		}
	}
	s.status(routes, r.Meta, map[string]any{"parents": list})
}

// rules renders the rules of a route.
func (s *stub) rules(r *route) (list []any) {
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		matches := []any{map[string]any{"prefix": "/"}}
		if len(rule.Matches) > 0 {
			matches = nil
		}
		for _, m := range rule.Matches {
			kind := map[string]string{"PathPrefix": "path_separated_prefix", "Exact": "path"}[m.Path.Type]
			if kind == "" || m.Path.Value == "/" {
				kind = "prefix"
			}
			matches = append(matches, map[string]any{kind: m.Path.Value})
		}
		for _, match := range matches {
			one := map[string]any{"match": match}
			maps.Copy(one, s.action(r, rule.Backends))
			list = append(list, one)
		}
	}
	return list
}

// action renders the weighted pools of a rule, each with its picker.
func (s *stub) action(r *route, backends []backend) map[string]any {
	var weighted []any
	for i := range backends {
		b := &backends[i]
		t := s.target(r, b)
		if !t.whole {
			return map[string]any{"direct_response": map[string]any{"status": 503}}
		}
		weight := 1
		if b.Weight != nil {
			weight = *b.Weight
		}
		weighted = append(weighted, map[string]any{
			"name": "pool " + t.pool.Meta.Name, "weight": weight, "typed_per_filter_config": pickedBy(t.pool.Meta.Name, t.pool.Spec.Picker.FailureMode == "FailOpen"),
		})
	}
	return map[string]any{"route": map[string]any{"timeout": "0s", "weighted_clusters": map[string]any{"clusters": weighted}}}
}

// pickedBy enables the filter with the pool's picker.
func pickedBy(pool string, open bool) map[string]any {
	return map[string]any{"envoy.filters.http.ext_proc": map[string]any{
		"@type": ext + "filters.http.ext_proc.v3.ExtProcPerRoute",
		"overrides": map[string]any{
			"failure_mode_allow": open, "processing_mode": duplex,
			"grpc_service": map[string]any{"envoy_grpc": map[string]any{"cluster_name": "epp " + pool, "authority": "epp.svc:9002"}},
		},
	}}
}

// clusters renders a pool's endpoints and its picker.
func (s *stub) clusters(p *pool) []any {
	var endpoints, pickers []any
	for _, one := range s.selected(p.Meta.Namespace, p.Spec.Selector.Labels) {
		for _, port := range p.Spec.Ports {
			if one.ready {
				endpoints = append(endpoints, address(one.ip, port.Number))
			}
		}
	}
	for i := range s.services {
		svc := &s.services[i]
		if p.Spec.Picker == nil || svc.Meta.Namespace != p.Meta.Namespace || svc.Meta.Name != p.Spec.Picker.Name {
			continue
		}
		for _, one := range s.selected(svc.Meta.Namespace, svc.Spec.Selector) {
			if one.ready {
				pickers = append(pickers, address(one.ip, 9002))
			}
		}
	}
	return []any{poolCluster("pool "+p.Meta.Name, endpoints, p.Spec.AppProtocol == "kubernetes.io/h2c"), pickerCluster("epp "+p.Meta.Name, pickers)}
}

func address(ip string, port int) map[string]any {
	return map[string]any{"endpoint": map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": ip, "port_value": port}}}}
}
