//go:build kube

package deploy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/pools"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// pickedPool returns an InferencePool of the pods with the label app, whose picker is a port of the
// Service pickers-epp.
func pickedPool(name string, port int) string {
	return fmt.Sprintf(`apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: pickers-epp, port: {number: %d}}
`, name, port)
}

// testSeveralPools installs a release for all pools of a namespace: one group of replicas serves each
// pool at its port, with the rights that the chart grants. Pools come and go while it runs.
func testSeveralPools(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "several"
	c.Namespace(namespace)
	for _, name := range []string{"small", "large", "third"} {
		ip := podkit.NodeAddress(t)
		e, err := sim.Open(sim.Options{Addr: ip + ":8000", Model: name, Speed: 20, Events: &sim.EventOptions{Addr: ip + ":5557", Replay: ip + ":5558"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		c.Pod(namespace, kubekit.Pod{Name: "vllm-" + name, IP: ip, Labels: fmt.Sprintf(`{"app":%q}`, name)})
	}
	c.Apply(pickedPool("small", 9012)+"---\n"+pickedPool("large", 9013), "-n", namespace)
	helm(t, c, "install", "pickers", chart, "-n", namespace, "--set", "allPools.enabled=true,allPools.ports={9012,9013,9014},modelFiles.source=off")
	k := podkit.Open(t, c, imagesOf(t, binary))
	k.Expose(namespace)
	var list []*podkit.Pod
	for range 2 {
		list = append(list, k.Deployment(namespace, "pickers-epp"))
	}
	for _, p := range list {
		p.WaitReady()
	}
	want := func(what string, ports map[string]int) {
		t.Helper()
		for _, p := range list {
			last := ""
			c.Until(what+" at "+p.Name, func() bool {
				var st pools.Status
				last, _ = p.Exec("epp", "/grapevine", "status", "-o", "json")
				if json.Unmarshal([]byte(last), &st) != nil || len(st.Pools) != len(ports) {
					return false
				}
				for _, one := range st.Pools {
					if one.Port != ports[one.Name] || one.Endpoints != 1 || one.State != "ready" && one.State != "degraded" {
						return false
					}
				}
				return true
			})
		}
	}
	want("both pools are served", map[string]int{"small": 9012, "large": 9013})
	for _, p := range list {
		for _, name := range []string{"small", "large"} {
			c.Until("pool "+name+" has two members at "+p.Name, func() bool {
				var st server.Status
				text, _ := p.Exec("epp", "/grapevine", "status", "--pool", name, "-o", "json")
				return json.Unmarshal([]byte(text), &st) == nil && len(st.Members) == 2 && st.Cluster.OK
			})
		}
	}
	c.Apply(pickedPool("third", 9014), "-n", namespace)
	want("a new pool is served", map[string]int{"small": 9012, "large": 9013, "third": 9014})
	c.Kubectl("delete", "inferencepool", "large", "-n", namespace)
	want("a deleted pool is removed", map[string]int{"small": 9012, "third": 9014})
}
