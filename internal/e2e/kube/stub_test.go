//go:build kube

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// The kinds of objects that the stub reads and writes.
var (
	classes     = kubeapi.Resource{Group: "gateway.networking.k8s.io", Version: "v1", Plural: "gatewayclasses"}
	gateways    = kubeapi.Resource{Group: "gateway.networking.k8s.io", Version: "v1", Plural: "gateways"}
	routes      = kubeapi.Resource{Group: "gateway.networking.k8s.io", Version: "v1", Plural: "httproutes"}
	pools       = kubeapi.Resource{Group: "inference.networking.k8s.io", Version: "v1", Plural: "inferencepools"}
	services    = kubeapi.Resource{Version: "v1", Plural: "services"}
	endpoints   = kubeapi.Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}
	bindings    = kubeapi.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Plural: "rolebindings"}
	deployments = kubeapi.Resource{Group: "apps", Version: "v1", Plural: "deployments"}
)

type meta struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	UID        string            `json:"uid"`
	Generation int64             `json:"generation"`
	Labels     map[string]string `json:"labels"`
}

func (m meta) id() string { return m.Namespace + "/" + m.Name }

type gateway struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Listeners []struct {
			Name string `json:"name"`
		} `json:"listeners"`
	} `json:"spec"`
}

type backend struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Weight *int   `json:"weight"`
}

type route struct {
	Meta meta `json:"metadata"`
	Spec struct {
		ParentRefs []struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"parentRefs"`
		Hostnames []string `json:"hostnames"`
		Rules     []struct {
			Matches []struct {
				Path struct{ Type, Value string } `json:"path"`
			} `json:"matches"`
			Backends []backend `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
}

type pool struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Selector struct {
			Labels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Ports []struct {
			Number int `json:"number"`
		} `json:"targetPorts"`
		AppProtocol string `json:"appProtocol"`
		Picker      *struct {
			Name        string `json:"name"`
			FailureMode string `json:"failureMode"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

type service struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Selector map[string]string `json:"selector"`
	} `json:"spec"`
}

type container struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	Env  []struct{ Name, Value string }
}

type deployment struct {
	Meta meta `json:"metadata"`
	Spec struct {
		Replicas int `json:"replicas"`
		Template struct {
			Meta meta `json:"metadata"`
			Spec struct {
				Containers []container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// stub replaces the parts of a cluster, other than its API server, that the suite needs.
type stub struct {
	t       *testing.T
	c       *kubekit.Cluster
	binary  string // grapevine
	envoy   *dataplane
	began   string
	written map[string]string // last written status by object and UID
	pods    map[string]*pod   // by namespace/name
	stop    chan struct{}
	done    sync.WaitGroup

	// Objects read in this turn.
	gateways []gateway
	routes   []route
	pools    []pool
	services []service
}

func startStub(t *testing.T, c *kubekit.Cluster, binary string, envoy *dataplane) *stub {
	s := &stub{t: t, c: c, binary: binary, envoy: envoy, began: time.Now().UTC().Format(time.RFC3339), written: map[string]string{}, pods: map[string]*pod{}, stop: make(chan struct{})}
	s.done.Go(func() {
		for {
			s.turn()
			select {
			case <-s.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		close(s.stop)
		s.done.Wait()
		for _, p := range s.pods {
			p.end()
		}
	})
	return s
}

// list reads all objects of a kind in all namespaces. It aborts the turn if the server does not yet
// serve that kind.
func list[T any](s *stub, r kubeapi.Resource) []T {
	code, text := s.c.Do(http.MethodGet, r.Path("", ""), nil, "")
	var page struct {
		Items []T `json:"items"`
	}
	switch {
	case code == 0 || code == http.StatusTooManyRequests:
		panic(errNotYet)
	case code != http.StatusOK || json.Unmarshal([]byte(text), &page) != nil:
		s.t.Errorf("list %s: %d %s", r, code, text)
	}
	return page.Items
}

var errNotYet = errors.New("the API server is not ready")

// turn updates pods, slices, routes and statuses from the objects in the API server.
func (s *stub) turn() {
	defer func() {
		if err := recover(); err != nil && err != errNotYet { //nolint:errorlint // it is panicked with as it is
			panic(err)
		}
	}()
	for _, class := range list[struct {
		Meta meta `json:"metadata"`
	}](s, classes) {
		s.status(classes, class.Meta, map[string]any{"conditions": []any{s.condition("Accepted", "True", "Accepted", class.Meta)}})
	}
	s.gateways, s.routes, s.pools, s.services = list[gateway](s, gateways), list[route](s, routes), list[pool](s, pools), list[service](s, services)
	for _, d := range list[deployment](s, deployments) {
		s.deploy(&d)
	}
	for i := range s.gateways {
		// The gateway's own Deployment: the suite waits for pods in its namespace.
		g := &s.gateways[i]
		d := deployment{Meta: meta{Name: "dataplane-" + g.Meta.Name, Namespace: g.Meta.Namespace}}
		s.deploy(&d)
	}
	for i := range s.services {
		s.slice(&s.services[i])
	}
	s.route()
}

// status writes a status if it has changed.
func (s *stub) status(r kubeapi.Resource, m meta, status any) {
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		s.t.Error(err)
	}
	key := r.Plural + " " + m.id() + " " + m.UID
	if s.written[key] == string(text) {
		return
	}
	code, answer := s.c.Do(http.MethodPatch, r.Path(m.Namespace, m.Name)+"/status", strings.NewReader(string(text)), "application/merge-patch+json")
	switch code {
	case http.StatusOK:
		s.written[key] = string(text)
	case http.StatusNotFound: // deleted in the meantime
	default:
		s.t.Errorf("status of %s: %d %s\n%s", key, code, answer, text)
	}
}

func (s *stub) condition(kind, status, reason string, m meta) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": reason, "observedGeneration": m.Generation, "lastTransitionTime": s.began}
}

// slice updates the EndpointSlice of a Service. An API server refuses loopback addresses there, so
// other addresses represent the pods.
func (s *stub) slice(svc *service) {
	if len(svc.Spec.Selector) == 0 {
		return
	}
	var list []string
	for i, p := range s.selected(svc.Meta.Namespace, svc.Spec.Selector) {
		if p.ready {
			list = append(list, fmt.Sprintf(`{"addresses":["10.9.0.%d"],"conditions":{"ready":true}}`, i+1))
		}
	}
	key, text := "slice "+svc.Meta.id(), strings.Join(list, ",")
	if was, ok := s.written[key]; ok && was == text {
		return
	}
	name := svc.Meta.Name + "-1"
	object := fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},"addressType":"IPv4","ports":[],"endpoints":[%s]}`, name, svc.Meta.Name, text)
	code, answer := s.c.Do(http.MethodPut, endpoints.Path(svc.Meta.Namespace, name), strings.NewReader(object), "application/json")
	if code == http.StatusNotFound {
		code, answer = s.c.Do(http.MethodPost, endpoints.Path(svc.Meta.Namespace, ""), strings.NewReader(object), "application/json")
	}
	if code >= 300 {
		s.t.Errorf("endpoint slice: %d %s", code, answer)
		return
	}
	s.written[key] = text
}

// selected returns the pods of a namespace with these labels, sorted by name.
func (s *stub) selected(namespace string, labels map[string]string) (list []*pod) {
	for _, id := range slices.Sorted(maps.Keys(s.pods)) {
		p := s.pods[id]
		match := p.namespace == namespace && len(labels) > 0
		for k, v := range labels {
			match = match && p.labels[k] == v
		}
		if match {
			list = append(list, p)
		}
	}
	return list
}
