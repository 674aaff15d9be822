//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// during checks that a condition holds for several seconds.
func during(t *testing.T, c *kubekit.Cluster, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(5 * time.Second)
	c.Until("some seconds have passed", func() bool {
		if !ok() {
			t.Fatalf("condition did not hold all the time: %s", what)
		}
		return time.Now().After(end)
	})
}

// testWriters has three replicas and another program write the condition of one objective. The
// replicas agree, and respond to the other writer at their own pace.
func testWriters(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("writers")
	c.Create(poolsV1, "writers", poolJSON("p", vllm, 8000))
	for range 3 {
		open(t, c, Options{Pool: "p", Namespace: "writers", LookAgain: 5 * time.Second}).wantGood()
	}
	c.Create(objectives, "writers", `{"apiVersion":"llm-d.ai/v1alpha2","kind":"InferenceObjective","metadata":{"name":"o"},"spec":{"poolRef":{"name":"p"}}}`)
	versions := map[string]bool{}
	accepted := func() bool {
		out := c.Kubectl("get", "inferenceobjectives.llm-d.ai/o", "-n", "writers", "-o",
			`jsonpath={.metadata.resourceVersion} {range .status.conditions[?(@.type=="Accepted")]}{.status}/{.reason}{end}`)
		version, condition, _ := strings.Cut(out, " ")
		versions[version] = true
		return condition == "True/Accepted"
	}
	// Each of the three writes at most once before it sees the condition.
	settled := func(writes int) {
		t.Helper()
		c.Until("the objective is accepted", accepted)
		during(t, c, "it stays accepted", accepted)
		if len(versions) > writes {
			t.Errorf("%d versions of the objective, want at most %d", len(versions), writes)
		}
	}
	settled(1 + 3)
	c.PatchStatus(objectives, "writers", "o", `{"status":{"conditions":[{"type":"Accepted","status":"False","reason":"SomebodyElse","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	settled(2 + 2*3)
}

// testOneWriter has three replicas of which one writes: each objective is written once. Objectives
// are accepted later if that replica does not write.
func testOneWriter(t *testing.T, c *kubekit.Cluster) {
	const namespace = "one-writer"
	c.Namespace(namespace)
	c.Create(poolsV1, namespace, poolJSON("p", vllm, 8000))
	var writes atomic.Bool
	writes.Store(true)
	for i := range 3 {
		o := Options{Pool: "p", Namespace: namespace, LookAgain: 5 * time.Second}
		o.Sink.Writes = func() bool { return i == 1 && writes.Load() }
		open(t, c, o).wantGood()
	}
	create := func(from, to int) {
		for i := from; i < to; i++ {
			c.Create(objectives, namespace, fmt.Sprintf(`{"apiVersion":"llm-d.ai/v1alpha2","kind":"InferenceObjective","metadata":{"name":"o%d"},"spec":{"poolRef":{"name":"p"}}}`, i))
		}
	}
	accepted := func(n int) func() bool {
		return func() bool {
			out := c.Kubectl("get", "inferenceobjectives.llm-d.ai", "-n", namespace, "-o", `jsonpath={range .items[*].status.conditions[?(@.type=="Accepted")]}{.status}{end}`)
			return out == strings.Repeat("True", n)
		}
	}
	version := func() string {
		return c.Kubectl("get", "inferenceobjectives.llm-d.ai", "-n", namespace, "-o", "jsonpath={range .items[*]}{.metadata.resourceVersion} {end}")
	}
	revision := func() int {
		var list struct {
			Metadata struct {
				Version int `json:"resourceVersion,string"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal([]byte(c.Kubectl("get", "--raw", "/api/v1/namespaces/"+namespace+"/pods")), &list); err != nil {
			t.Fatal(err)
		}
		return list.Metadata.Version
	}
	first := revision()
	create(0, 20)
	c.Until("all objectives are accepted", accepted(20))
	if n := revision() - first; n > 20+20+10 { // the server itself writes too
		t.Errorf("%d writes for 20 new objectives", n)
	}
	before := version()
	during(t, c, "no objective is written again", func() bool { return version() == before })
	writes.Store(false)
	create(20, 21)
	c.Until("the objective is accepted without the writer", accepted(21))
}

// testElsewhere follows a pool in another namespace, with permissions only there.
func testElsewhere(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("home")
	c.Namespace("away")
	for _, ns := range []string{"home", "away"} {
		c.Create(poolsV1, ns, poolJSON("p", vllm, 8000))
	}
	c.Pod("home", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	c.Pod("away", kubekit.Pod{Name: "a", IP: "10.0.0.2", Labels: vllm})
	c.Grant("away", "epp", "other", "get,list,watch inference.networking.k8s.io inferencepools", "list,watch core pods")
	config := c.As("other")
	config.Namespace = "home"
	v := open(t, c, Options{Config: config, Pool: "p", Namespace: "away"})
	v.want("10.0.0.2:8000")
	v.wantGood()
	open(t, c, Options{Config: config, Pool: "p"}).wantProblem("in a Role of namespace home")
}

// testRecreated deletes and recreates a pool: within the grace period nothing changes, and then the
// new content applies.
func testRecreated(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("again")
	c.Create(poolsV1, "again", poolJSON("p", vllm, 8000))
	c.Pod("again", kubekit.Pod{Name: "a", IP: "10.0.0.1", Labels: vllm})
	v := open(t, c, Options{Pool: "p", Namespace: "again", Grace: time.Hour})
	v.want("10.0.0.1:8000")
	before := v.count()
	c.Delete(poolsV1, "again", "p")
	c.Until("the pool is missed", func() bool { return len(v.pools[0].Items()) == 0 })
	c.Create(poolsV1, "again", poolJSON("p", vllm, 8000))
	c.Until("it is there again", func() bool { return len(v.pools[0].Items()) == 1 })
	during(t, c, "nothing is told", func() bool { return v.count() == before })
	c.Delete(poolsV1, "again", "p")
	c.Create(poolsV1, "again", poolJSON("p", vllm, 9000, 9001))
	v.want("10.0.0.1:9000 10.0.0.1:9001")
	if code, answer := c.Do(http.MethodDelete, "/api/v1/namespaces/again/pods?gracePeriodSeconds=0", nil, ""); code != http.StatusOK {
		t.Fatal(code, answer)
	}
	v.want("")
	v.wantGood()
}
