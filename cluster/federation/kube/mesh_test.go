//go:build kube

package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// mesh replaces the federation: it passes the state of controllers to the others.
type mesh struct {
	t       *testing.T
	servers map[string]*kubekit.Cluster
	ns      string
	drain   time.Duration
	pace    time.Duration

	mu    sync.Mutex
	sites map[string]*site
}

// site is one cluster of a mesh.
type site struct {
	m    *mesh
	name string
	*kubekit.Cluster
	serves      []string
	config      kubeapi.Config // of its service account; zero: the administrator's
	cut         bool           // cut off in both directions
	local       Local
	controllers []*Controller
}

// open starts a controller for pool p in each named cluster.
func (m *mesh) open(names ...string) {
	for _, name := range names {
		s := &site{m: m, name: name, Cluster: m.servers[name], serves: []string{"p"}}
		m.mu.Lock()
		m.sites[name] = s
		m.mu.Unlock()
	}
	for _, name := range names {
		m.sites[name].start(Options{})
	}
}

func (s *site) start(o Options) *Controller {
	s.m.t.Helper()
	if o.Config.Server == "" {
		o.Config = s.Config()
	}
	if o.Namespace = cmp.Or(o.Namespace, s.m.ns); o.Namespace == all {
		o.Namespace = ""
	}
	o.Grace = s.m.pace
	o.Drain, o.Pace, o.Settle = cmp.Or(o.Drain, s.m.drain), cmp.Or(o.Pace, s.m.pace), 5*time.Millisecond
	o.Log = slog.New(slog.NewTextHandler(s.m.t.Output(), nil)).With("cluster", s.name)
	o.Serves = func() map[Name]string {
		out := map[Name]string{}
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		for _, n := range s.serves {
			out[Name{s.m.ns, n}] = ""
		}
		return out
	}
	o.View = s.view
	o.Publish = func(l Local) {
		s.m.mu.Lock()
		s.local = l
		s.m.mu.Unlock()
		s.m.wake()
	}
	c, err := Open(o)
	if err != nil {
		s.m.t.Fatal(err)
	}
	s.m.mu.Lock()
	s.controllers = append(s.controllers, c)
	s.m.mu.Unlock()
	return c
}

// stop stops a site's controllers.
func (s *site) stop() {
	s.m.mu.Lock()
	list := s.controllers
	s.controllers = nil
	s.m.mu.Unlock()
	for _, c := range list {
		c.Close()
	}
}

func (s *site) view() View {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	v := View{Cluster: s.name, Settled: true}
	for _, o := range s.m.sites {
		if o != s {
			v.Members = append(v.Members, Member{Cluster: o.name, Silent: s.cut || o.cut, Exports: o.local.Exports, Served: o.local.Served, ServedKnown: true, Holds: o.local.Holds})
		}
	}
	return v
}

func (m *mesh) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sites {
		for _, c := range s.controllers {
			c.Wake()
		}
	}
}

// setCut cuts a cluster off or reconnects it.
func (m *mesh) setCut(name string, cut bool) {
	m.mu.Lock()
	m.sites[name].cut = cut
	m.mu.Unlock()
	m.wake()
}

func (m *mesh) close() {
	for _, s := range m.sites {
		if m.t.Failed() {
			m.t.Logf("cluster %s: parents %q, controllers %q\n%s", s.name, s.parents("p"), s.controls("p"), s.message("p"))
		}
		s.stop()
	}
}

// pool creates a pool with the annotation's value, "" for none.
func (s *site) pool(name, export string) {
	s.m.t.Helper()
	notes := "{}"
	if export != "" {
		notes = fmt.Sprintf(`{%q:%q}`, Annotation, export)
	}
	s.Create(pools, s.m.ns, fmt.Sprintf(`{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":%q,"annotations":%s},
		"spec":{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":8000}],"endpointPickerRef":{"name":"epp","port":{"number":9002}}}}`, name, notes))
}

// annotate sets a pool's annotation, JSON; null removes it.
func (s *site) annotate(name, value string) {
	s.m.t.Helper()
	s.Patch(pools, s.m.ns, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, Annotation, value))
}

// get reads an object; ok is false if it does not exist.
func (s *site) get(r kubeapi.Resource, name string, into any) (ok bool) {
	s.m.t.Helper()
	code, answer := s.Do(http.MethodGet, r.Path(s.m.ns, name), nil, "application/json")
	if code != http.StatusOK {
		return false
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		s.m.t.Fatal(err)
	}
	return true
}

// parents returns the entries of a pool's status, our own as "Exported=STATUS/REASON".
func (s *site) parents(name string) string {
	s.m.t.Helper()
	var o struct {
		Status struct {
			Parents []parent `json:"parents"`
		} `json:"status"`
	}
	s.get(pools, name, &o)
	var out []string
	for _, p := range o.Status.Parents {
		if p.Controller != DefaultController && p.Controller != HubController {
			out = append(out, p.Ref.Kind+":"+p.Ref.Name)
			continue
		}
		for _, c := range p.Conditions {
			out = append(out, fmt.Sprintf("%s %s/%s %s=%s/%s", p.Ref.Kind, p.Ref.Namespace, p.Ref.Name, c.Type, c.Status, c.Reason))
		}
	}
	return strings.Join(out, " ")
}

// entry is our pool entry with that status and reason.
func (m *mesh) entry(status, reason string) string {
	return fmt.Sprintf("InferencePoolImport %s/p Exported=%s/%s", m.ns, status, reason)
}

// message returns the message of our condition in a pool.
func (s *site) message(name string) string {
	s.m.t.Helper()
	out, err := s.Command("kubectl", "", "describe", "inferencepools.inference.networking.k8s.io", name, "-n", s.m.ns)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out), " ")
}

// controls returns the entries of an import: "CONTROLLER=CLUSTERS ACCEPTED/REASON", ours without a
// name; "none" if there is no import.
func (s *site) controls(name string) string {
	s.m.t.Helper()
	var o struct {
		Status struct {
			Controllers []control `json:"controllers"`
		} `json:"status"`
	}
	if !s.get(imports, name, &o) {
		return "none"
	}
	out := []string{}
	for _, c := range o.Status.Controllers {
		var clusters []string
		for _, e := range c.Clusters {
			clusters = append(clusters, e.Name)
		}
		text := strings.TrimPrefix(strings.TrimPrefix(c.Name, HubController), DefaultController) + "=" + strings.Join(clusters, ",")
		if a, ok := conditionOf(c.Conditions, typeAccepted); ok {
			text += " " + a.Status + "/" + a.Reason
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// want waits until read returns want.
func (s *site) want(what string, read func(string) string, name, want string) {
	s.m.t.Helper()
	s.Until(fmt.Sprintf("%s of %s in %s: %q", what, name, s.name, want), func() bool { return read(name) == want })
}

func (s *site) wantParents(want string) {
	s.m.t.Helper()
	s.want("parents", s.parents, "p", want)
}

func (s *site) wantControls(want string) {
	s.m.t.Helper()
	s.want("controllers", s.controls, "p", want)
}

// wantMessage waits until kubectl describes the pool with this text.
func (s *site) wantMessage(text string) {
	s.m.t.Helper()
	s.Until(fmt.Sprintf("%q in pool p of %s", text, s.name), func() bool { return strings.Contains(s.message("p"), text) })
}

// value returns a counter's value.
func value(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue()
}
