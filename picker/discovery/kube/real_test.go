//go:build kube

package kube

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestRealServer runs all tests on one real API server. Tests that stop or remove parts of the
// server run last.
func TestRealServer(t *testing.T) {
	c := kubekit.Start(t, "inference")
	defs, err := os.ReadFile("../../../deploy/crds/llm-d.ai.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		run  func(*testing.T, *kubekit.Cluster)
	}{
		{"Pool", testPool}, {"Ports", testPorts}, {"Selector", testSelector}, {"Lives", testLives}, {"Standalone", testStandalone},
		{"Rights", testRights}, {"Events", testEvents}, {"RandomChanges", testRandom}, {"DeletedPool", testDeletedPool},
		{"Names", func(t *testing.T, c *kubekit.Cluster) { testNames(t, c, string(defs)) }},
		{"Writers", testWriters}, {"OneWriter", testOneWriter}, {"Elsewhere", testElsewhere}, {"Recreated", testRecreated}, {"OlderPool", testOlderPool}, {"Outage", testOutage}, {"UninstalledKind", testUninstalled},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(t, c) })
	}
}

// view is a source and its last update.
type view struct {
	t *testing.T
	c *kubekit.Cluster
	*Source

	mu    sync.Mutex
	last  discovery.Found
	times int
}

func open(t *testing.T, c *kubekit.Cluster, o Options) *view {
	t.Helper()
	v := &view{t: t, c: c}
	if o.Config.Server == "" {
		o.Config = c.Config()
	}
	o.Settle = cmp.Or(o.Settle, time.Millisecond)
	o.Sink = discovery.Sink{Writes: o.Sink.Writes, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Update: func(f discovery.Found) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.last, v.times = f, v.times+1
	}}
	var err error
	if v.Source, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func (v *view) found() discovery.Found {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// count returns the number of updates.
func (v *view) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.times
}

// addrs returns the endpoints of the last update.
func (v *view) addrs() string {
	var out []string
	for _, s := range v.found().Specs {
		out = append(out, s.Addr.String())
	}
	return strings.Join(out, " ")
}

func (v *view) want(addrs string) {
	v.t.Helper()
	v.c.Until("endpoints "+addrs, func() bool { return v.addrs() == addrs })
}

// wantProblem waits until the status has a problem with that text.
func (v *view) wantProblem(text string) {
	v.t.Helper()
	v.c.Until("problem "+text, func() bool {
		return slices.ContainsFunc(v.Status().Problems, func(p discovery.Problem) bool { return strings.Contains(p.String(), text) })
	})
	if v.Status().OK() {
		v.t.Error("status is OK despite problems")
	}
}

// wantInvalid waits until the status has an invalid object with that text.
func (v *view) wantInvalid(text string) {
	v.t.Helper()
	v.c.Until("invalid object: "+text, func() bool {
		return slices.ContainsFunc(v.Status().Invalid, func(p discovery.Problem) bool { return strings.Contains(p.String(), text) })
	})
}

// wantGood waits until the status is OK.
func (v *view) wantGood() {
	v.t.Helper()
	v.c.Until("good status", func() bool { return v.Status().OK() })
}

func poolJSON(name, labels string, ports ...int) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprintf(`{"number":%d}`, p))
	}
	return fmt.Sprintf(`{"apiVersion":"inference.networking.k8s.io/v1","kind":"InferencePool","metadata":{"name":%q},
		"spec":{"selector":{"matchLabels":%s},"targetPorts":[%s]}}`, name, labels, strings.Join(list, ","))
}

const vllm = `{"app":"vllm"}`

// testPool follows pods through their lifecycle.
func testPool(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("pool")
	v := open(t, c, Options{Pool: "p", Namespace: "pool"})
	v.wantProblem("there is no such pool")
	c.Create(poolsV1, "pool", poolJSON("p", vllm, 8000))
	c.Until("an empty list", func() bool { return v.Status().OK() })
	c.Pod("pool", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: `{"app":"vllm","llm-d.ai/role":"prefill"}`})
	c.Pod("pool", kubekit.Pod{Name: "b", IP: "fd00::2", Labels: vllm})
	c.Pod("pool", kubekit.Pod{Name: "stranger", IP: "10.0.0.3", Labels: `{"app":"web"}`})
	v.want("10.0.0.1:8000 [fd00::2]:8000")
	if s := v.found().Specs[0]; s.Name != "a" || s.Namespace != "pool" || endpoint.RoleOf(s.Labels[endpoint.LabelRole]) != endpoint.RolePrefill {
		t.Errorf("endpoint %+v", s)
	}
	c.Ready("pool", "a", "10.0.0.1", false)
	v.want("[fd00::2]:8000")
	c.Ready("pool", "a", "10.0.0.1", true)
	c.Pod("pool", kubekit.Pod{Name: "c", IP: "10.0.0.4", Labels: vllm, Finalizer: true})
	v.want("10.0.0.1:8000 10.0.0.4:8000 [fd00::2]:8000")
	c.Delete(kubekit.Pods, "pool", "c") // it stays, terminating
	v.want("10.0.0.1:8000 [fd00::2]:8000")
	c.Patch(kubekit.Pods, "pool", "c", `{"metadata":{"finalizers":null}}`)
	c.Patch(kubekit.Pods, "pool", "b", `{"metadata":{"labels":{"app":"web"}}}`)
	v.want("10.0.0.1:8000")
	v.wantGood()
	if st := v.Status(); st.From != "InferencePool pool/p" || st.Endpoints != 1 || time.Since(st.Read) > time.Minute {
		t.Errorf("status %+v", st)
	}
}

// testPorts: pods with several endpoints.
func testPorts(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("ports")
	c.Create(poolsV1, "ports", poolJSON("p", vllm, 8000, 8001))
	v := open(t, c, Options{Pool: "p", Namespace: "ports", Events: endpoint.Events{Port: 5557, Ranks: 1}})
	c.Pod("ports", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	c.Pod("ports", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: vllm, Annotations: `{"llm-d.ai/active-ports":"8001","grapevine-epp.github.io/models":"m"}`})
	v.want("10.0.0.1:8000 10.0.0.1:8001 10.0.0.2:8001")
	if s := v.found().Specs; s[1].Events.Port != 5558 || s[1].Rank != 1 || !slices.Equal(s[2].Models, []string{"m"}) || s[2].Name != "b-rank-1" {
		t.Errorf("endpoints %+v", s)
	}
	c.Patch(poolsV1, "ports", "p", `{"spec":{"targetPorts":[{"number":9000}]}}`)
	v.want("10.0.0.1:9000")
	v.wantInvalid("lists none of the pool's target ports")
	v.wantGood()
}

// testSelector changes a pool's selector, also to an invalid one.
func testSelector(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("selector")
	c.Create(poolsV1, "selector", poolJSON("p", vllm, 8000))
	v := open(t, c, Options{Pool: "p", Namespace: "selector"})
	c.Pod("selector", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	c.Pod("selector", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: `{"app":"sglang"}`})
	v.want("10.0.0.1:8000")
	c.Patch(poolsV1, "selector", "p", `{"spec":{"selector":{"matchLabels":{"app":null,"bad key!":"1"}}}}`)
	v.wantProblem(`"bad key!"`)
	v.want("10.0.0.1:8000")
	before := v.times
	c.Patch(poolsV1, "selector", "p", `{"spec":{"selector":{"matchLabels":{"app":"sglang","bad key!":null}},"targetPorts":[{"number":9000}]}}`)
	v.want("10.0.0.2:9000")
	if v.times != before+1 {
		t.Errorf("the change caused %d updates, want 1", v.times-before)
	}
	v.wantGood()
}

// testLives assigns an address to another pod, and restarts a container.
func testLives(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("lives")
	c.Create(poolsV1, "lives", poolJSON("p", vllm, 8000))
	v := open(t, c, Options{Pool: "p", Namespace: "lives"})
	life := func() string {
		if s := v.found().Specs; len(s) == 1 {
			return s[0].Instance
		}
		return ""
	}
	seen := map[string]bool{}
	another := func(what string) {
		t.Helper()
		c.Until(what, func() bool { l := life(); return l != "" && !seen[l] })
		seen[life()] = true
	}
	c.Pod("lives", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	another("the first life")
	c.Restarts("lives", "a", 1)
	another("a restart is another life")
	c.Delete(kubekit.Pods, "lives", "a")
	v.want("")
	c.Pod("lives", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	another("a pod of the same name and address is another life")
	c.Pod("lives", kubekit.Pod{Name: "b", IP: "10.0.0.1", Labels: vllm})
	c.Until("two pods at one address", func() bool { return v.Status().Doubled == 1 })
}

// testStandalone follows pods without a pool.
func testStandalone(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("alone")
	c.Grant("alone", "alone", "epp", "get,list,watch core pods")
	v := open(t, c, Options{Config: c.As("epp"), Selector: "app in (vllm, sglang),!canary", Ports: []uint16{8000}, Namespace: "alone"})
	c.Pod("alone", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	c.Pod("alone", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: `{"app":"sglang","canary":"1"}`})
	v.want("10.0.0.1:8000")
	v.wantGood()
	bad := open(t, c, Options{Selector: "app in vllm", Ports: []uint16{8000}, Namespace: "alone"})
	bad.wantProblem("unable to parse")
}

// testRights: missing permissions are reported, and known data is kept when permissions are
// revoked.
func testRights(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("rights")
	c.Create(poolsV1, "rights", poolJSON("p", vllm, 8000))
	c.Pod("rights", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	v := open(t, c, Options{Config: c.As("epp"), Pool: "p", Namespace: "rights"})
	v.wantProblem(`missing right: apiGroups ["inference.networking.k8s.io"] resources ["inferencepools"] verbs ["list"] in a Role of namespace rights`)
	c.Grant("rights", "pool", "epp", "get,list,watch inference.networking.k8s.io inferencepools")
	v.wantProblem(`missing right: apiGroups [""] resources ["pods"] verbs ["list"] in a Role of namespace rights`)
	c.Grant("rights", "pods", "epp", "list,watch core pods")
	v.want("10.0.0.1:8000")
	v.wantGood() // missing optional permissions are not an error
	c.Until("notes of what is not in use", func() bool {
		notes := v.Status().Notes
		return len(notes) == 2 && notes[0].File == "objectives" && notes[1].File == "rewrites" && strings.Contains(notes[1].Message, `resources ["inferencemodelrewrites"] verbs ["list"]`)
	})
	c.Grant("rights", "pods", "epp", "get core services")
	c.StopServer() // open watches outlive the permission, new ones fail
	c.StartServer()
	v.wantProblem(`resources ["pods"] verbs ["list"]`)
	v.want("10.0.0.1:8000")
	c.Grant("rights", "pods", "epp", "list core pods")
	v.wantGood()
	c.Until("a note of the missing permission to watch", func() bool {
		return slices.ContainsFunc(v.Status().Notes, func(p discovery.Problem) bool {
			return strings.Contains(p.Message, `resources ["pods"] verbs ["watch"]`)
		})
	})
	c.Pod("rights", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: vllm})
	v.want("10.0.0.1:8000 10.0.0.2:8000")
	c.Grant("rights", "pods", "epp", "list,watch core pods")
	v.wantGood()
}

// testEvents reads the output of kubectl describe.
func testEvents(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("events")
	c.Pod("events", kubekit.Pod{Name: "epp-0", IP: "10.0.0.9"})
	uid := c.Kubectl("get", "pod", "epp-0", "-n", "events", "-o", "jsonpath={.metadata.uid}")
	c.Grant("events", "epp", "epp", "get,list,watch inference.networking.k8s.io inferencepools", "list,watch core pods", "create events.k8s.io events")
	v := open(t, c, Options{
		Config: c.As("epp"), Pool: "p", Namespace: "events",
		Self: Reference{APIVersion: "v1", Kind: "Pod", Name: "epp-0", Namespace: "events", UID: uid},
	})
	described := func(what, text string) {
		t.Helper()
		c.Until(text, func() bool {
			out, err := c.Command("kubectl", "", "describe", what, "-n", "events")
			return err == nil && strings.Contains(out, text)
		})
	}
	described("pod/epp-0", "there is no InferencePool events/p")
	c.Create(poolsV1, "events", poolJSON("p", vllm, 8000))
	described("inferencepools.inference.networking.k8s.io/p", "the selector app=vllm matches no pod")
	c.Pod("events", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm, Annotations: `{"llm-d.ai/active-ports":"1"}`})
	described("inferencepools.inference.networking.k8s.io/p", "lists none of the pool's target ports")
	c.Patch(poolsV1, "events", "p", `{"spec":{"selector":{"matchLabels":{"bad key!":"1"}}}}`)
	described("inferencepools.inference.networking.k8s.io/p", "InvalidSelector")
	v.want("")
}

// testDeletedPool: endpoints are removed once the deletion is confirmed.
func testDeletedPool(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("deleted")
	c.Create(poolsV1, "deleted", poolJSON("p", vllm, 8000))
	c.Pod("deleted", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	v := open(t, c, Options{Pool: "p", Namespace: "deleted", Grace: 2 * time.Second})
	v.want("10.0.0.1:8000")
	deleted := time.Now() // before the deletion, since the source may see it first
	c.Delete(poolsV1, "deleted", "p")
	v.want("")
	if d := time.Since(deleted); d < 2*time.Second {
		t.Errorf("endpoints were removed after %v", d)
	}
	v.wantProblem("there is no such pool")
	c.Create(poolsV1, "deleted", poolJSON("p", vllm, 8000))
	v.want("10.0.0.1:8000")
}

// testNames reads objectives and rewrites of the older group, and of the newer one once that is
// installed.
func testNames(t *testing.T, c *kubekit.Cluster, definitions string) {
	c.Namespace("names")
	c.Create(poolsV1, "names", poolJSON("p", vllm, 8000))
	c.Create(poolsV1, "names", poolJSON("other", vllm, 8000))
	v := open(t, c, Options{Pool: "p", Namespace: "names", LookAgain: time.Second})
	v.wantGood()
	want := func(what string, n request.Names) {
		t.Helper()
		c.Until(what, func() bool { return gocmp.Equal(v.found().Names, n) })
	}
	c.Kubectl("apply", "--server-side", "-f", kubekit.Parts(t)+"/crds/inference-old/inference.networking.x-k8s.io_inferenceobjectives.yaml")
	c.Kubectl("wait", "--for=condition=Established", "crd/inferenceobjectives.inference.networking.x-k8s.io", "--timeout=60s")
	object := func(group, kind, name, spec string) {
		t.Helper()
		c.Until(kind+" "+name, func() bool {
			_, err := c.Command("kubectl", fmt.Sprintf(`{"apiVersion":"%s/v1alpha2","kind":%q,"metadata":{"name":%q,"namespace":"names"},"spec":%s}`, group, kind, name, spec), "apply", "-f", "-")
			return err == nil
		})
	}
	object(GroupPoolOld, "InferenceObjective", "old", `{"priority":5,"poolRef":{"name":"p"}}`)
	want("the older group", request.Names{Objectives: map[string]int{"old": 5}})
	c.Apply(definitions)
	object(GroupNames, "InferenceObjective", "new", `{"priority":-7,"poolRef":{"name":"p"}}`)
	object(GroupNames, "InferenceObjective", "foreign", `{"priority":1,"poolRef":{"name":"other"}}`)
	object(GroupNames, "InferenceObjective", "lost", `{"priority":1,"poolRef":{"name":"late"}}`)
	want("the newer group alone", request.Names{Objectives: map[string]int{"new": -7}})
	object(GroupNames, "InferenceModelRewrite", "w", `{"poolRef":{"name":"p"},"rules":[{"matches":[{"model":{"value":"m"}}],"targets":[{"modelRewrite":"a","weight":9},{"modelRewrite":"b","weight":1}]},{}]}`)
	want("a rewrite", request.Names{
		Objectives: map[string]int{"new": -7},
		Rewrites:   map[string]request.Rewrite{"m": {{Model: "a", Weight: 9}, {Model: "b", Weight: 1}}, request.AnyModel: nil},
	})
	object(GroupNames, "InferenceObjective", "mismatch", `{"poolRef":{"group":"inference.networking.x-k8s.io","name":"p"}}`)
	condition := func(name, want string) {
		t.Helper()
		c.Until("condition of "+name, func() bool {
			out, _ := c.Command("kubectl", "", "get", name, "-n", "names", "-o", `jsonpath={range .status.conditions[?(@.type=="Accepted")]}{.status}/{.reason}{end}`)
			return out == want
		})
	}
	condition("inferenceobjectives.llm-d.ai/new", "True/Accepted")
	condition("inferencemodelrewrites.llm-d.ai/w", "True/Accepted")
	condition("inferenceobjectives.llm-d.ai/mismatch", "False/PoolGroupMismatch")
	condition("inferenceobjectives.llm-d.ai/lost", "False/PoolNotFound")
	c.Create(poolsV1, "names", poolJSON("late", vllm, 8000))
	condition("inferenceobjectives.llm-d.ai/lost", "Unknown/Pending") // its own picker decides
	if out := c.Kubectl("get", "inferenceobjectives.llm-d.ai/foreign", "-n", "names", "-o", "jsonpath={.status.conditions}"); strings.Contains(out, "grapevine") || strings.Contains(out, "Accepted") {
		t.Errorf("condition of another pool's objective was written: %s", out)
	}
	c.Kubectl("delete", "inferencemodelrewrites.llm-d.ai", "w", "-n", "names")
	want("the rewrite is gone", request.Names{Objectives: map[string]int{"new": -7}})
}

// testOlderPool follows a pool of the older version.
func testOlderPool(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("older")
	c.Pod("older", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	v := open(t, c, Options{Pool: "p", Namespace: "older", Grace: 2 * time.Second})
	only := open(t, c, Options{Pool: "p", Namespace: "older", Group: GroupPoolOld})
	only.wantProblem("the kind is not installed")
	c.Kubectl("apply", "--server-side", "-f", kubekit.Parts(t)+"/crds/inference-old/inference.networking.x-k8s.io_inferencepools.yaml")
	c.Kubectl("wait", "--for=condition=Established", "crd/inferencepools.inference.networking.x-k8s.io", "--timeout=60s")
	c.Until("an older pool", func() bool {
		_, err := c.Command("kubectl", `{"apiVersion":"inference.networking.x-k8s.io/v1alpha2","kind":"InferencePool","metadata":{"name":"p","namespace":"older"},
			"spec":{"selector":{"app":"vllm"},"targetPortNumber":8000,"extensionRef":{"name":"epp"}}}`, "apply", "-f", "-")
		return err == nil
	})
	v.want("10.0.0.1:8000")
	only.want("10.0.0.1:8000")
	c.Create(poolsV1, "older", poolJSON("p", vllm, 9000))
	v.want("10.0.0.1:9000")
	only.want("10.0.0.1:8000")
	both := open(t, c, Options{Pool: "p", Namespace: "older"})
	c.Until("the newer pool first", func() bool { return both.addrs() != "" })
	if both.addrs() != "10.0.0.1:9000" || both.count() != 1 {
		t.Errorf("with pools of both versions: endpoints %s in %d updates", both.addrs(), both.count())
	}
	c.Delete(poolsV1, "older", "p")
	v.want("10.0.0.1:8000") // the older one, which has existed all along
	v.wantGood()
}

// testOutage stops the API server. Endpoints stay, the status reports it, and changes made in
// between appear once a server is back.
func testOutage(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("outage")
	c.Create(poolsV1, "outage", poolJSON("p", vllm, 8000))
	c.Pod("outage", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	c.Pod("outage", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: vllm})
	v := open(t, c, Options{Pool: "p", Namespace: "outage"})
	v.want("10.0.0.1:8000 10.0.0.2:8000")
	read := v.Status().Read
	for range 3 {
		times := v.times
		c.StopServer()
		v.wantProblem("not readable for")
		if st := v.Status(); st.Endpoints != 2 || v.times != times {
			t.Errorf("%d endpoints, %d updates while the server is unreachable", st.Endpoints, v.times-times)
		}
		c.StartServer()
		v.wantGood()
	}
	c.StopServer()
	v.wantProblem("not readable for")
	c.StartServer()
	// These are written before the watches are open again.
	c.Delete(kubekit.Pods, "outage", "a")
	c.Pod("outage", kubekit.Pod{Name: "c", IP: "10.0.0.3", Labels: vllm})
	v.want("10.0.0.2:8000 10.0.0.3:8000")
	v.wantGood()
	if !v.Status().Read.After(read) {
		t.Error("Status.Read was not updated after the outage")
	}
}

// testUninstalled deletes the CRD of pools. That does not delete the pool, whose endpoints stay.
func testUninstalled(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("uninstalled")
	c.Create(poolsV1, "uninstalled", poolJSON("p", vllm, 8000))
	c.Pod("uninstalled", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	v := open(t, c, Options{Pool: "p", Namespace: "uninstalled", Grace: 5 * time.Second})
	v.want("10.0.0.1:8000")
	c.Kubectl("delete", "crd", "inferencepools.inference.networking.k8s.io")
	v.wantProblem("the kind is not installed")
	end := time.Now().Add(7 * time.Second) // longer than the grace period
	c.Until("the grace time is over", func() bool { return time.Now().After(end) })
	c.Pod("uninstalled", kubekit.Pod{Name: "b", IP: "10.0.0.2", Labels: vllm})
	v.want("10.0.0.1:8000 10.0.0.2:8000")
}
