//go:build kube

package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// picker is the part of the picker's Deployment that model files depend on.
type picker struct {
	Kind string `json:"kind"`
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []container      `json:"initContainers"`
				Containers     []container      `json:"containers"`
				Volumes        []map[string]any `json:"volumes"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type container struct {
	Args []string `json:"args"`
	Env  []struct {
		Name      string         `json:"name"`
		Value     string         `json:"value"`
		ValueFrom map[string]any `json:"valueFrom"`
	} `json:"env"`
	Mounts []struct {
		Name     string `json:"name"`
		Path     string `json:"mountPath"`
		ReadOnly bool   `json:"readOnly"`
	} `json:"volumeMounts"`
}

func (c *container) env(name string) (value string, ref map[string]any) {
	for _, e := range c.Env {
		if e.Name == name {
			value, ref = e.Value, e.ValueFrom
		}
	}
	return value, ref
}

func (c *container) mounted(name string) (path string, readOnly bool) {
	for _, m := range c.Mounts {
		if m.Name == name {
			path, readOnly = m.Path, m.ReadOnly
		}
	}
	return path, readOnly
}

// testModelFiles: the examples of model files are accepted by the API server, and give the picker
// the token, the cache and the volumes that they name.
func testModelFiles(t *testing.T, c *kubekit.Cluster) {
	files, err := filepath.Glob("examples/models/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if filepath.Base(file) == "lora.yaml" { // engines
				dryRun(t, c, readFile(t, file))
				return
			}
			out := helm(t, c, "template", "llama", chart, "-n", "prod", "-f", file)
			dryRun(t, c, out)
			var p picker
			for doc := range strings.SplitSeq(out, "\n---\n") {
				var one picker
				if yaml.Unmarshal([]byte(doc), &one) == nil && one.Kind == "Deployment" {
					p = one
				}
			}
			pod := p.Spec.Template.Spec
			if len(pod.Containers) != 1 {
				t.Fatalf("%d containers, want 1", len(pod.Containers))
			}
			main := &pod.Containers[0]
			cache, _ := main.mounted("model-cache")
			if !slices.Contains(main.Args, "--model-cache="+cache) || cache == "" {
				t.Errorf("arguments %q lack --model-cache with the path %q of its volume", main.Args, cache)
			}
			source := "--model-source=cache"
			switch home, _ := main.env("HF_HOME"); filepath.Base(file) {
			case "gated.yaml":
				source = "--model-source=auto"
				if _, ref := main.env("HF_TOKEN"); ref["secretKeyRef"] == nil {
					t.Error("HF_TOKEN does not come from a Secret")
				}
			case "air-gapped-init.yaml":
				if path, _ := pod.InitContainers[0].mounted("model-cache"); path == "" {
					t.Error("the init container does not mount the cache")
				}
			default:
				if path, readOnly := main.mounted("huggingface"); path != home || home == "" || !readOnly {
					t.Errorf("cache mounted at %q, read only %v; want %q, read only", path, readOnly, home)
				}
			}
			if !slices.Contains(main.Args, source) {
				t.Errorf("arguments %q lack %s", main.Args, source)
			}
		})
	}
}
