//go:build kube

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

var block = regexp.MustCompile("(?m)^ *```(sh|yaml)\n((?:.*\n)*?) *```\n")

// blocks returns a page's code blocks in a language, without their indent.
func blocks(page, language string) (out []string) {
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			indent := len(m[2]) - len(strings.TrimLeft(m[2], " "))
			out = append(out, regexp.MustCompile(`(?m)^ {0,`+string(rune('0'+indent))+`}`).ReplaceAllString(m[2], ""))
		}
	}
	return out
}

// testPage follows docs/kubernetes.md like a reader. It runs every command on the real API server
// and applies every manifest. Commands that need nodes or a registry are compared with the files
// instead.
func testPage(t *testing.T, c *kubekit.Cluster, binary string) {
	page := readFile(t, "../docs/kubernetes.md")
	_, walk, _ := strings.Cut(page, "## Ten minutes\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	fill := strings.NewReplacer("REGISTRY", "registry.example", "TAG", "v1", "deploy/", "", "$(openssl rand -base64 32)", "c2VjcmV0", "GATEWAY", "gateway")
	var did []string
	for _, b := range blocks(walk, "sh") {
		for line := range strings.Lines(strings.ReplaceAll(b, "\\\n", " ")) {
			args := strings.Fields(fill.Replace(line))
			if len(args) < 2 {
				continue
			}
			what := strings.Join(args[:2], " ")
			did = append(did, what)
			switch what {
			case "docker build":
				if i := slices.Index(args, "-f"); i < 0 || !strings.Contains(readFile(t, args[i+1]), "ENTRYPOINT") {
					t.Errorf("%s: no such file", line)
				}
			case "docker push", "helm test", "curl http://gateway/v1/completions": // helm test: its pod is applied by testChart
			case "kubectl create", "helm install", "kubectl apply":
				if overlay := slices.Index(args, "overlay"); overlay > 0 {
					args[overlay] = overlayOf(t, fill.Replace(strings.Join(blocks(walk, "yaml"), "")))
				}
				if out, err := c.Command(args[0], "", append(args[1:], "--dry-run=server", "-n", "default")...); err != nil || strings.Contains(out, "Warning") {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			case "kubectl exec":
				if !strings.HasPrefix(args[2], "deployment/llama-epp") || args[4] != "/grapevine" {
					t.Errorf("%s: no such container", line)
				}
				if out, err := exec.Command(binary, append(args[5:], "--help")...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
			default:
				t.Errorf("a command without a test: %s", line)
			}
		}
	}
	if len(did) < 10 {
		t.Errorf("only these were found: %q", did)
	}
	for _, b := range blocks(strings.Replace(page, walk, "", 1), "yaml") {
		dryRun(t, c, b)
	}
	testTogether(t, c)
}

// overlayOf writes an overlay of the base and returns its folder.
func overlayOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Abs("kustomize/base")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "../kustomize/base", base)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// manifest holds the checked fields of the example manifests.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Selector    map[string]any `json:"selector"`
		TargetPorts []struct {
			Number int `json:"number"`
		} `json:"targetPorts"`
		Picker struct {
			Name string `json:"name"`
			Port struct {
				Number int `json:"number"`
			} `json:"port"`
		} `json:"endpointPickerRef"`
		Ports []struct {
			Port int `json:"port"`
		} `json:"ports"`
		Rules []struct {
			Backends []struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"backendRefs"`
		} `json:"rules"`
		Template struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				Containers []struct {
					Ports []struct {
						Port int `json:"containerPort"`
					} `json:"ports"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

func manifests(t *testing.T, text, kind string) (out []manifest) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---") {
		var m manifest
		if err := yaml.Unmarshal([]byte(doc), &m); err == nil && m.Kind == kind { // others have other fields
			out = append(out, m)
		}
	}
	return out
}

// testTogether: the examples' pools select the example's engines at a port that they have,
// name the Service that the chart makes, and their routes name these pools.
func testTogether(t *testing.T, c *kubekit.Cluster) {
	engine := manifests(t, readFile(t, "examples/vllm.yaml"), "Deployment")[0]
	port := engine.Spec.Template.Spec.Containers[0].Ports[0].Port
	services := map[string][]int{}
	for _, s := range manifests(t, helm(t, c, "template", "llama", chart), "Service") {
		for _, p := range s.Spec.Ports {
			services[s.Metadata.Name] = append(services[s.Metadata.Name], p.Port)
		}
	}
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text := readFile(t, f)
		pools := manifests(t, text, "InferencePool")
		if !strings.Contains(text, "kind: HTTPRoute") { // not of a gateway
			continue
		}
		if len(pools) != 1 {
			t.Errorf("%s: %d pools", f, len(pools))
			continue
		}
		p := pools[0]
		labels, _ := p.Spec.Selector["matchLabels"].(map[string]any)
		for name, v := range labels {
			if engine.Spec.Template.Metadata.Labels[name] != v {
				t.Errorf("%s: the pool selects %v, which the example's engines are not", f, labels)
			}
		}
		if len(labels) == 0 || len(p.Spec.TargetPorts) != 1 || p.Spec.TargetPorts[0].Number != port {
			t.Errorf("%s: target ports %v, the engines have %d", f, p.Spec.TargetPorts, port)
		}
		if !slices.Contains(services[p.Spec.Picker.Name], p.Spec.Picker.Port.Number) {
			t.Errorf("%s: the picker is %+v, the chart makes %v", f, p.Spec.Picker, services)
		}
		routes := manifests(t, text, "HTTPRoute")
		for _, r := range append(routes, manifests(t, text, "AIGatewayRoute")...) {
			for _, rule := range r.Spec.Rules {
				for _, b := range rule.Backends {
					if b.Kind == "InferencePool" && b.Name != p.Metadata.Name {
						t.Errorf("%s: the route names pool %s", f, b.Name)
					}
				}
			}
		}
		if len(routes) == 0 && !strings.Contains(text, "name: "+p.Metadata.Name) {
			t.Errorf("%s: no route", f)
		}
	}
}
