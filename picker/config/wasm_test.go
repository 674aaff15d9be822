package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/wasmkit"
)

// TestWasmFiles: the file of a module is relative to the configuration's folder, its checksum is part of
// the effective configuration, and problems point at the parameter.
func TestWasmFiles(t *testing.T) {
	dir := t.TempDir()
	module := wasmkit.Module(wasmkit.Options{Facts: []string{`endpoint.labels["tier"]`}, Body: wasmkit.Nothing})
	if err := os.WriteFile(filepath.Join(dir, "own.wasm"), module, 0o600); err != nil {
		t.Fatal(err)
	}
	parse := func(params string) (*Config, string) {
		text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: wasm-scorer\n  name: own\n  parameters:\n    " + params + "\n"
		c, problems := Parse(filepath.Join(dir, "epp.yaml"), []byte(text), Options{})
		var all []string
		for _, p := range problems {
			all = append(all, strings.TrimPrefix(p.String(), dir+"/"))
		}
		return c, strings.Join(all, "\n")
	}
	c, problems := parse("file: own.wasm\n    labels: [tier]")
	if problems != "" || len(c.Sandboxes) != 1 || c.Sandboxes[0].Name != "own" {
		t.Fatalf("%s; %+v", problems, c)
	}
	effective, err := c.Effective()
	if err != nil || !strings.Contains(string(effective), "sha256: ") {
		t.Errorf("the effective configuration has no checksum: %v\n%s", err, effective)
	}
	for params, want := range map[string]string{
		"file: own.wasm":                            "epp.yaml:7:5: plugin own: parameter labels must list tier, which the module reads",
		"file: own.wasm\n    labels: [zone]":        "epp.yaml:8:13: plugin own: parameter labels must list tier",
		"file: none.wasm":                           "epp.yaml:7:11: plugin own: parameter file cannot be read: open ",
		"file: epp.wasm\n    memoryLimit: 1Ki":      "epp.yaml:8:18: plugin own: parameter memoryLimit must be a size",
		"flie: own.wasm":                            `unknown field "flie"`,
		"file: own.wasm\n    sha256: abc":           "epp.yaml:8:13: plugin own: parameter sha256 is not the checksum of own.wasm",
		"file: own.wasm\n    maxInstructions: many": "maxInstructions must be a whole number",
	} {
		if c, got := parse(params); c != nil || !strings.Contains(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", params, got, want)
		}
	}
}
