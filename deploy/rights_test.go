//go:build kube

package deploy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// rule is a rule of a Role.
type rule struct {
	Groups    []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Names     []string `json:"resourceNames,omitempty"`
	Verbs     []string `json:"verbs"`
}

// right is one verb of one resource that the chart's Roles grant.
type right struct{ role, resource, verb string }

// rightsOf returns all rights that a release grants, except for federations.
func rightsOf(t *testing.T, c *kubekit.Cluster, namespace, release string) (list []right) {
	t.Helper()
	var roles struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Rules []rule `json:"rules"`
		} `json:"items"`
	}
	text := c.Kubectl("get", "roles", "-n", namespace, "-l", "app.kubernetes.io/instance="+release, "-o", "json")
	if err := json.Unmarshal([]byte(text), &roles); err != nil {
		t.Fatal(err)
	}
	for _, r := range roles.Items {
		for _, one := range r.Rules {
			for _, resource := range one.Resources {
				for _, verb := range one.Verbs {
					list = append(list, right{strings.TrimPrefix(r.Metadata.Name, release+"-"), resource, verb})
				}
			}
		}
	}
	return list
}

// revoke removes one right from a release's Roles.
func revoke(t *testing.T, c *kubekit.Cluster, namespace, release string, x right) {
	t.Helper()
	name := release + "-" + x.role
	var role struct {
		Rules []rule `json:"rules"`
	}
	if err := json.Unmarshal([]byte(c.Kubectl("get", "role", name, "-n", namespace, "-o", "json")), &role); err != nil {
		t.Fatal(err)
	}
	var rules []rule
	for _, r := range role.Rules {
		for _, resource := range r.Resources {
			one := r
			one.Resources = []string{resource}
			if resource == x.resource {
				one.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return v == x.verb })
			}
			if len(one.Verbs) > 0 {
				rules = append(rules, one)
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl("patch", "role", name, "-n", namespace, "--type=merge", "-p", string(patch))
}

// testRights removes one right after the other from a separate release. Each missing right is named
// by a problem with a code and a remedy and by the log. Pods and pools are followed without the
// right to watch them, and endpoints stay without any right but those to list both.
func testRights(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "rights"
	c.Namespace(namespace)
	c.Apply(readFile(t, "crds/llm-d.ai.yaml"))
	c.Kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	startEngine(t, c, namespace, "vllm-0")
	// A fault that replicas report in an event.
	c.Pod(namespace, kubekit.Pod{Name: "faulty", IP: podkit.NodeAddress(t), Labels: `{"app":"vllm"}`, Annotations: `{"llm-d.ai/active-ports":"1"}`})
	install := func(release string) {
		helm(t, c, "install", release, chart, "-n", namespace, "--set", "pool.create=true,pool.matchLabels.app=vllm,cluster.peers=endpointslices")
	}
	install("r0")
	rights := rightsOf(t, c, namespace, "r0")
	if len(rights) < 14 {
		t.Fatalf("the chart grants %d rights, want 14 or more: %v", len(rights), rights)
	}
	k := podkit.Open(t, c, imagesOf(t, binary))
	pods := make([]*podkit.Pod, len(rights))
	for i, x := range rights {
		release := fmt.Sprintf("r%d", i)
		if i > 0 {
			install(release)
		}
		revoke(t, c, namespace, release, x)
		for _, kind := range []string{"InferenceObjective", "InferenceModelRewrite"} {
			spec := map[string]string{"InferenceObjective": `priority: 1, poolRef: {name: %[1]s}`, "InferenceModelRewrite": `poolRef: {name: %[1]s}, rules: [{targets: [{modelRewrite: m}]}]`}[kind]
			c.Apply(fmt.Sprintf("{apiVersion: llm-d.ai/v1alpha2, kind: "+kind+", metadata: {name: %[1]s}, spec: {"+spec+"}}", release), "-n", namespace)
		}
	}
	k.Expose(namespace)
	for i := range rights {
		pods[i] = k.Deployment(namespace, fmt.Sprintf("r%d-epp", i))
	}
	for i, x := range rights {
		t.Run(x.resource+" "+x.verb, func(t *testing.T) { missingRight(t, c, pods[i], x) })
	}
	startEngine(t, c, namespace, "vllm-1")
	for i, x := range rights {
		if x.required() {
			continue
		}
		c.Until(fmt.Sprintf("a new pod is followed without the right to %s %s", x.verb, x.resource), func() bool {
			return strings.Contains(get(t, "http://"+pods[i].IP+":9090/metrics"), "\ngrapevine_picker_endpoints 2\n")
		})
	}
}

// required reports whether there are no endpoints without the right.
func (x right) required() bool {
	return x.verb == "list" && (x.resource == "pods" || x.resource == "inferencepools")
}

// missingRight waits until the pod names the missing right in a problem and in its log, and serves if
// the right is not required.
func missingRight(t *testing.T, c *kubekit.Cluster, p *podkit.Pod, x right) {
	names := func(text string) bool {
		return strings.Contains(text, fmt.Sprintf("resources [%q] verbs [%q]", x.resource, x.verb))
	}
	code := problems.Rights
	if x.required() {
		code = problems.NoEndpoint
	} else {
		p.WaitReady()
	}
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("the last status: %s\nthe log: %s", last, p.Log("epp"))
		}
	}()
	c.Until("a problem names the right", func() bool {
		st, text := statusOf(p)
		last = text
		return slices.ContainsFunc(st.Problems, func(f problems.Found) bool {
			return f.Code == code && len(f.Action) > 0 && slices.ContainsFunc(f.Items, func(i problems.Item) bool { return names(i.Detail) })
		})
	})
	c.Until("the log names the right", func() bool { return names(strings.ReplaceAll(p.Log("epp"), `\"`, `"`)) })
	if x.required() {
		return
	}
	if page := get(t, "http://"+p.IP+":9090/metrics"); !strings.Contains(page, "\ngrapevine_picker_endpoints 1\n") {
		t.Errorf("without the right to %s %s, %s does not count the engine", x.verb, x.resource, p.Name)
	}
}
