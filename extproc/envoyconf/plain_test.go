package envoyconf

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestPlainHasNoPicker(t *testing.T) {
	out, err := Render(Params{Kind: Plain, Endpoints: []string{"10.0.0.1:8000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(out, &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if s := string(out); strings.Contains(s, "ext_proc") || strings.Contains(s, "override_host") || !strings.Contains(s, "lb_policy: ROUND_ROBIN") {
		t.Errorf("got\n%s", s)
	}
}
