//go:build kube

package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// TestFederation runs all tests on two and three real API servers. Tests that stop parts of them
// run last.
func TestFederation(t *testing.T) {
	servers := map[string]*kubekit.Cluster{}
	for _, name := range []string{"a", "b", "c"} {
		servers[name] = kubekit.Start(t, "inference")
	}
	for _, x := range []struct {
		name string
		run  func(*mesh)
	}{
		{"Export", testExport}, {"ExportedToAll", testExportedToAll}, {"Namespaces", testNamespaces}, {"Values", testValues}, {"Withdrawal", testWithdrawal},
		{"ForeignParents", testForeignParents}, {"Overwritten", testOverwritten}, {"Contended", testContended}, {"ForeignControllers", testForeignControllers},
		{"Replicas", testReplicas}, {"Hub", testHub}, {"Uninstall", testUninstall}, {"Rights", testRights}, {"RandomChanges", testRandom}, {"Restarts", testRestarts}, {"AbsentKind", testAbsentKind},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := &mesh{t: t, servers: servers, ns: strings.ToLower(x.name), sites: map[string]*site{}, drain: 500 * time.Millisecond, pace: 200 * time.Millisecond}
			for name, c := range servers {
				if x.name != "Namespaces" || name != "c" {
					c.Namespace(m.ns)
				}
			}
			t.Cleanup(m.close)
			x.run(m)
		})
	}
}

// all makes a controller manage every namespace.
const all = "*"

// testExport: an annotated pool has an import with its namespace and name in every member, shared
// by all exporting clusters, and a status entry that names it.
func testExport(m *mesh) {
	m.open("a", "b")
	a, b := m.sites["a"], m.sites["b"]
	a.pool("p", "")
	b.pool("p", "")
	a.annotate("p", `"ClusterSet"`)
	a.wantControls("=a True/Accepted")
	b.wantControls("=a True/Accepted")
	a.wantParents(m.entry("True", "Exported"))
	a.wantMessage("exported to a, b")
	b.wantParents("") // without an annotation
	b.annotate("p", `"ClusterSet"`)
	a.wantControls("=a,b True/Accepted")
	b.wantControls("=a,b True/Accepted")
	b.wantParents(m.entry("True", "Exported"))
	var o struct {
		Status struct {
			Controllers []map[string]any `json:"controllers"`
		} `json:"status"`
	}
	if b.get(imports, "p", &o); o.Status.Controllers[0]["parents"] != nil {
		m.t.Error("our entry has parents, want none: the gateway that serves the import adds its own")
	}
	// A pool that another picker serves is not exported.
	a.pool("other", "ClusterSet")
	a.pool("q", "ClusterSet")
	m.mu.Lock()
	a.serves = []string{"p", "q"}
	m.mu.Unlock()
	m.wake()
	b.want("controllers", b.controls, "q", "=a True/Accepted")
	if got := a.parents("other") + b.controls("other"); got != "none" {
		m.t.Errorf("pool of another picker: %s", got)
	}
}

// testExportedToAll: Exported is True while every member has the import, and False otherwise.
func testExportedToAll(m *mesh) {
	m.open("a", "b", "c")
	a, c := m.sites["a"], m.sites["c"]
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	m.setCut("c", true)
	a.wantParents(m.entry("False", "Pending"))
	a.wantMessage("waiting for c (silent); exported to a, b")
	m.sites["c"].wantControls("=a False/Silent")
	m.setCut("c", false)
	a.wantParents(m.entry("True", "Exported"))
	m.sites["c"].wantControls("=a True/Accepted")
	// A deleted import counts as missing and is created again.
	c.Delete(imports, m.ns, "p")
	m.sites["c"].wantControls("=a True/Accepted")
	a.wantParents(m.entry("True", "Exported"))
}

// testNamespaces: a member that lacks or does not manage the namespace has no import, and the
// Exported condition reports it.
func testNamespaces(m *mesh) {
	m.open("a", "b")
	a, c := m.sites["a"], &site{m: m, name: "c", Cluster: m.servers["c"]}
	m.mu.Lock()
	m.sites["c"] = c
	m.mu.Unlock()
	c.start(Options{Namespace: "default"})
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantMessage("not to c: the namespace is not managed; exported to a, b")
	c.stop()
	c.start(Options{Namespace: all})
	a.wantMessage("not to c: there is no such namespace; exported to a, b")
	c.Namespace(m.ns)
	a.wantParents(m.entry("True", "Exported"))
	c.wantControls("=a True/Accepted")
}

// testValues: only the one known scope is exported.
func testValues(m *mesh) {
	m.open("a", "b")
	a := m.sites["a"]
	a.pool("p", "Galaxy")
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantMessage(`"Galaxy" is not a known scope: want ClusterSet`)
	a.annotate("p", `""`)
	a.wantParents(m.entry("False", "NotRequested"))
	a.annotate("p", `"ClusterSet"`)
	a.wantParents(m.entry("True", "Exported"))
	a.annotate("p", `"clusterset"`)
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantControls("none")
	m.sites["b"].wantControls("none")
}

// testWithdrawal: the entry is removed with the annotation, imports after the drain time.
func testWithdrawal(m *mesh) {
	m.drain = 2 * time.Second
	m.open("a", "b")
	a, b := m.sites["a"], m.sites["b"]
	a.pool("p", "ClusterSet")
	b.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	b.wantControls("=a,b True/Accepted")
	begin := time.Now()
	a.annotate("p", `null`)
	a.wantParents("")
	b.wantControls("=b True/Accepted")
	if d := time.Since(begin); d < m.drain {
		m.t.Errorf("b's import lost a after %v, the drain time is %v", d, m.drain)
	}
	a.wantControls("=b True/Accepted")
	b.wantParents(m.entry("True", "Exported"))
	// Annotated again while draining: nothing is lost.
	b.annotate("p", `null`)
	a.wantControls("=b False/Draining")
	b.annotate("p", `"ClusterSet"`)
	a.wantControls("=b True/Accepted")
	// A deleted pool is withdrawn too. A restart during draining neither skips nor prolongs it.
	begin = time.Now()
	b.Delete(pools, m.ns, "p")
	a.wantControls("=b False/Draining")
	b.stop()
	b.start(Options{})
	a.wantControls("none")
	b.wantControls("none")
	if d := time.Since(begin); d < m.drain {
		m.t.Errorf("imports were removed after %v, the drain time is %v", d, m.drain)
	}
}

// foreign returns n entries of gateways as JSON.
func foreign(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(`{"parentRef":{"name":"gw-%02d"},"controllerName":"example.org/gateway","conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`, i))
	}
	return out
}

// replace writes a pool's complete list of parents, as some controllers do.
func (s *site) replace(entries []string) {
	s.m.t.Helper()
	s.PatchStatus(pools, s.m.ns, "p", `{"status":{"parents":[`+strings.Join(entries, ",")+`]}}`)
}

func kinds(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("Gateway:gw-%02d", i))
	}
	return strings.Join(out, " ")
}

// testForeignParents: other entries are kept in order, even if the list is full.
func testForeignParents(m *mesh) {
	m.open("a", "b")
	a := m.sites["a"]
	a.pool("p", "")
	a.replace(foreign(31))
	a.annotate("p", `"ClusterSet"`)
	a.wantParents(kinds(31) + " " + m.entry("True", "Exported"))
	a.annotate("p", `null`)
	a.wantParents(kinds(31))
	a.replace(foreign(32))
	a.annotate("p", `"ClusterSet"`)
	m.sites["b"].wantControls("=a True/Accepted")
	a.Until("the full list in the status", func() bool {
		return strings.Contains(fmt.Sprint(a.controllers[0].Status().Problems), "the pool's status has 32 entries of other controllers")
	})
	a.wantParents(kinds(32))
	a.replace(foreign(2))
	a.wantParents(kinds(2) + " " + m.entry("True", "Exported"))
}

// testOverwritten: an entry overwritten by another controller is written again, at growing delays.
func testOverwritten(m *mesh) {
	m.pace = 200 * time.Millisecond
	m.open("a", "b")
	a := m.sites["a"]
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	// The delay counts from the previous write, which happened after that turn had begun.
	var before time.Time
	for i := range 4 {
		begin := time.Now()
		a.replace(foreign(1))
		a.wantParents("Gateway:gw-00 " + m.entry("True", "Exported"))
		if took := time.Since(before); i == 3 && took < m.pace*8 {
			m.t.Errorf("fourth rewrite came only %v after the third turn began", took)
		}
		before = begin
	}
	again := func() float64 { return value(a.controllers[0].writer.counts.reasserted) }
	a.Until("all that was written again is counted", func() bool { return again() >= 4 })
	if n := again(); n != 4 {
		m.t.Errorf("%v entries written again, want 4", n)
	}
	// The same for an import: its map is replaced.
	b := m.sites["b"]
	b.PatchStatus(imports, m.ns, "p", `{"status":{"controllers":[{"name":"example.org/other"}]}}`)
	b.wantControls("=a True/Accepted; example.org/other=")
}

// testContended: with other writers of the same list, no entry is lost.
func testContended(m *mesh) {
	m.open("a", "b")
	a := m.sites["a"]
	a.pool("p", "")
	const writers, times = 4, 15
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			client, err := kubeapi.NewClient(a.Config(), "writer")
			if err != nil {
				m.t.Error(err)
				return
			}
			defer client.Close()
			name := fmt.Sprintf("example.org/writer-%d", w)
			other := writer{client: client, reader: reader{name}, counts: newCounts()}
			for i := 0; i < times; {
				p, err := other.read(m.t.Context(), Name{m.ns, "p"})
				if err != nil {
					m.t.Error(err)
					return
				}
				c := condition{Type: typeAccepted, Status: "True", Reason: "Accepted", Message: fmt.Sprint(i), Since: time.Now().UTC().Truncate(time.Second)}
				if _, err := other.parent(m.t.Context(), &p, parentOf(name, Name{m.ns, fmt.Sprint("gw-", w)}, c)); err == nil {
					i++
				}
			}
		})
	}
	for i := range 20 {
		a.annotate("p", []string{`"ClusterSet"`, `"x"`}[i%2])
	}
	a.annotate("p", `"ClusterSet"`)
	wg.Wait()
	a.Until("all entries", func() bool {
		got := strings.Fields(a.parents("p"))
		return len(got) == writers+3 && strings.Contains(a.parents("p"), m.entry("True", "Exported"))
	})
	for w := range writers {
		if want := fmt.Sprintf("InferencePoolImport:gw-%d", w); strings.Count(a.parents("p"), want) != 1 {
			m.t.Errorf("%s in %s", want, a.parents("p"))
		}
	}
}

// testForeignControllers: other controllers' entries in an import are kept, and keep the import.
func testForeignControllers(m *mesh) {
	m.open("a", "b")
	a, b := m.sites["a"], m.sites["b"]
	entry := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`{"name":"example.org/c%d","exportingClusters":[{"name":"z"}],"parents":[{"parentRef":{"name":"gw"}}]}`, i))
		}
		return `{"status":{"controllers":[` + strings.Join(out, ",") + `]}}`
	}
	// An import that we did not create and that is full.
	b.Create(imports, m.ns, `{"apiVersion":"inference.networking.x-k8s.io/v1alpha1","kind":"InferencePoolImport","metadata":{"name":"p"}}`)
	b.PatchStatus(imports, m.ns, "p", entry(8))
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantMessage("not to b: the API server refuses the import; exported to a")
	b.PatchStatus(imports, m.ns, "p", entry(7))
	a.wantParents(m.entry("True", "Exported"))
	if got := b.controls("p"); strings.Count(got, "example.org") != 7 || !strings.Contains(got, "=a True/Accepted") {
		m.t.Errorf("controllers in b: %s", got)
	}
	// Another controller adds an entry to one of our imports.
	a.Command("kubectl", fmt.Sprintf(`{"apiVersion":"inference.networking.x-k8s.io/v1alpha1","kind":"InferencePoolImport","metadata":{"name":"p","namespace":%q},"status":{"controllers":[{"name":"example.org/gw","parents":[{"parentRef":{"name":"gw"}}]}]}}`, m.ns),
		"apply", "--server-side", "--subresource=status", "--field-manager=gw", "-f", "-")
	a.wantControls("=a True/Accepted; example.org/gw=")
	a.annotate("p", `null`)
	a.wantControls("example.org/gw=")
	b.want("controllers", func(n string) string { return fmt.Sprint(strings.Count(b.controls(n), "example.org")) }, "p", "7")
	b.want("controllers", func(n string) string { return fmt.Sprint(strings.Contains(b.controls(n), "True/")) }, "p", "false")
	// When the last other entry is removed, the import that we created is removed, and the other
	// one stays.
	a.PatchStatus(imports, m.ns, "p", `{"status":{"controllers":[]}}`)
	a.wantControls("none")
	b.PatchStatus(imports, m.ns, "p", `{"status":{"controllers":[]}}`)
	b.wantControls("")
}

// testReplicas: one of three replicas writes, and the next one when the first is gone.
func testReplicas(m *mesh) {
	m.open("a", "b")
	a, b := m.sites["a"], m.sites["b"]
	a.stop()
	var list []*Controller
	var gone atomic.Int32
	for turn := range 3 {
		list = append(list, a.start(Options{Rank: func() int { return turn - int(gone.Load()) }, Stagger: time.Hour}))
	}
	writes := func(i int) float64 {
		n := list[i].writer.counts
		return value(n.writes.WithLabelValues("pool")) + value(n.writes.WithLabelValues("import")) + value(n.conflicts)
	}
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		m.mu.Lock()
		b.serves = append(b.serves, name)
		m.mu.Unlock()
		b.pool(name, "ClusterSet")
		a.want("controllers", a.controls, name, "=b True/Accepted")
	}
	// The server may show a write before its writer has the response and counts it.
	a.Until("the first replica counts its writes", func() bool { return writes(0) != 0 })
	if writes(1)+writes(2) != 0 {
		m.t.Errorf("the replicas wrote %v, %v and %v times", writes(0), writes(1), writes(2))
	}
	list[0].Close()
	m.mu.Lock()
	a.controllers = list[1:]
	m.mu.Unlock()
	gone.Add(1)
	a.annotate("p", `"x"`)
	a.wantParents(m.entry("False", "NotSupported"))
	a.Until("the second replica counts its writes", func() bool { return writes(1) != 0 })
	if writes(2) != 0 {
		m.t.Errorf("after the first stopped, the last wrote %v times", writes(2))
	}
}

// testRights: a missing permission is reported here, and other clusters see that the pool did not
// arrive.
func testRights(m *mesh) {
	m.open("a", "b")
	a, b := m.sites["a"], m.sites["b"]
	b.stop()
	c := b.start(Options{Config: b.As("epp")})
	problem := func(text string) {
		m.t.Helper()
		b.Until(text, func() bool { return strings.Contains(fmt.Sprint(c.Status().Problems), text) })
	}
	problem(`missing right: apiGroups ["inference.networking.k8s.io"] resources ["inferencepools"] verbs ["list"] in a Role of namespace rights`)
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("False", "Pending"))
	b.Grant(m.ns, "read", "epp", "list,watch inference.networking.k8s.io inferencepools", "list,watch inference.networking.x-k8s.io inferencepoolimports")
	problem(`resources ["inferencepoolimports"] verbs ["create"]`)
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantMessage("not to b: a right on InferencePoolImports is missing")
	b.Grant(m.ns, "write", "epp", "create,delete inference.networking.x-k8s.io inferencepoolimports", "patch inference.networking.x-k8s.io inferencepoolimports/status",
		"get inference.networking.k8s.io inferencepools", "patch inference.networking.k8s.io inferencepools/status")
	a.wantParents(m.entry("True", "Exported"))
	b.pool("p", "ClusterSet")
	b.wantParents(m.entry("True", "Exported"))
	a.annotate("p", `null`)
	b.annotate("p", `null`)
	b.wantControls("none")
	b.Until("nothing to complain of", func() bool { return len(c.Status().Problems) == 0 })
}

// testRestarts: API servers and controllers stop and restart.
func testRestarts(m *mesh) {
	m.open("a", "b", "c")
	a, b, c := m.sites["a"], m.sites["b"], m.sites["c"]
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	c.StopServer()
	c.Until("the outage in the status", func() bool {
		return strings.Contains(fmt.Sprint(c.controllers[0].Status().Problems), "unreadable since")
	})
	b.pool("p", "ClusterSet")
	a.wantControls("=a,b True/Accepted")
	b.wantParents(m.entry("False", "Pending"))
	b.wantMessage("waiting for c; exported to a, b")
	a.stop() // and loses its state
	c.StartServer()
	c.wantControls("=a,b True/Accepted")
	b.wantParents(m.entry("True", "Exported"))
	a.start(Options{})
	b.Delete(pools, m.ns, "p")
	for _, s := range []*site{a, b, c} {
		s.wantControls("=a True/Accepted")
	}
	a.wantParents(m.entry("True", "Exported"))
}

// testAbsentKind: if the import kind is not installed, that is reported and waited for.
func testAbsentKind(m *mesh) {
	m.open("a", "b", "c")
	a, c := m.sites["a"], m.sites["c"]
	a.pool("p", "ClusterSet")
	a.wantParents(m.entry("True", "Exported"))
	c.Kubectl("delete", "crd", "inferencepoolimports.inference.networking.x-k8s.io")
	a.wantParents(m.entry("False", "NotSupported"))
	a.wantMessage("not to c: the kind InferencePoolImport is not installed; exported to a, b")
	c.Kubectl("apply", "--server-side", "-f", kubekit.Parts(m.t)+"/crds/inference/inference.networking.x-k8s.io_inferencepoolimports.yaml")
	a.wantParents(m.entry("True", "Exported"))
	c.wantControls("=a True/Accepted")
}

// group starts a controller for one pool in clusters a and b, as replicas with a service account of their
// own do.
func (m *mesh) group(pool string) *mesh {
	g := &mesh{t: m.t, servers: m.servers, ns: m.ns, sites: map[string]*site{}, drain: m.drain, pace: m.pace}
	for _, name := range []string{"a", "b"} {
		g.sites[name] = &site{m: g, name: name, Cluster: m.servers[name], serves: []string{pool}}
	}
	for _, s := range g.sites {
		s.config = s.Account(m.ns, pool)
		s.Grant(m.ns, pool, "system:serviceaccount:"+m.ns+":"+pool,
			"get,list,watch inference.networking.k8s.io inferencepools", "patch inference.networking.k8s.io inferencepools/status",
			"list,watch,create,patch,delete inference.networking.x-k8s.io inferencepoolimports", "patch inference.networking.x-k8s.io inferencepoolimports/status")
	}
	for _, s := range g.sites {
		s.restart()
	}
	m.t.Cleanup(g.close)
	return g
}

// restart starts the site's controller, or replaces it.
func (s *site) restart() {
	s.stop()
	s.m.mu.Lock()
	s.cut = false
	s.m.mu.Unlock()
	s.start(Options{Config: s.config, Group: Name{s.m.ns, s.serves[0]}, Lease: time.Second})
}

// testUninstall: two clusters export two pools, each with a group of its own, and a hub serves both. One
// group is removed from a cluster, its pool, service account and replicas in any order, while the others
// restart. After drain and two leases the other cluster does not name it, its own cluster has no entry of
// it, and the other pool's imports were never without an exporter.
func testUninstall(m *mesh) {
	configs := map[string]kubeapi.Config{"a": m.servers["a"].Config(), "b": m.servers["b"].Config()}
	var hub *Hub
	reopen := func() {
		if hub != nil {
			hub.Close()
		}
		var err error
		hub, err = OpenHub(HubOptions{Members: configs, Pools: []Name{{m.ns, "llama"}, {m.ns, "qwen"}}, Namespace: m.ns, Drain: m.drain, APITimeout: time.Second,
			Log: slog.New(slog.NewTextHandler(m.t.Output(), nil)).With("cluster", "hub")})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	reopen()
	defer func() { hub.Close() }()
	llama, qwen := m.group("llama"), m.group("qwen")
	a, b := llama.sites["a"], llama.sites["b"]
	for _, g := range []*mesh{llama, qwen} {
		for _, s := range g.sites {
			s.pool(s.serves[0], "ClusterSet")
		}
	}
	const both, one = "=a,b True/Accepted; =a,b True/Accepted", "=b True/Accepted; =b True/Accepted"
	whole := func(s *site, name string) { m.t.Helper(); s.want("controllers", s.controls, name, both) }
	for _, s := range []*site{a, b} {
		whole(s, "llama")
		whole(s, "qwen")
	}
	remove := map[string]func(){
		"pool":     func() { a.Delete(pools, m.ns, "llama") },
		"account":  func() { a.Cluster.Delete(kubekit.Accounts, m.ns, "llama") },
		"replicas": func() { a.leave() },
	}
	for i, order := range [][]string{{"pool", "account", "replicas"}, {"account", "replicas", "pool"}, {"replicas", "pool", "account"}} {
		begin := time.Now()
		for _, what := range order {
			remove[what]()
			a.CollectGarbage(imports, m.ns)
			b.restart()
			for _, s := range []*site{a, b} {
				if got := s.controls("qwen"); got != both {
					m.t.Errorf("%v, %s removed: import of qwen in %s: %s", order, what, s.name, got)
				}
			}
		}
		if i == 1 {
			reopen()
		}
		b.want("controllers", b.controls, "llama", one)
		a.Until("only the hub's entry in a", func() bool {
			a.CollectGarbage(imports, m.ns)
			return a.controls("llama") == "=b True/Accepted"
		})
		m.t.Logf("%v: gone after %v", order, time.Since(begin))
		a.config = a.Account(m.ns, "llama")
		a.pool("llama", "ClusterSet")
		a.restart()
		for _, s := range []*site{a, b} {
			whole(s, "llama")
			whole(s, "qwen")
		}
	}
}

// leave stops a site's controllers as the last replica does.
func (s *site) leave() {
	for _, c := range s.controllers {
		c.Withdraw()
	}
	s.m.mu.Lock()
	s.cut = true
	s.m.mu.Unlock()
	s.stop()
	s.m.wake()
}
