package arch

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPublicPackagesAreLight: plugins in Go import these packages. They do not bring the runtime for
// plugins in other languages or the compiler for expressions with them.
func TestPublicPackagesAreLight(t *testing.T) {
	for _, name := range []string{"plugin", "cycle", "request", "endpoint"} {
		out, err := exec.Command("go", "list", "-deps", "../../picker/"+name).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		for pkg := range strings.Lines(string(out)) {
			for _, heavy := range []string{"github.com/tetratelabs/wazero", "github.com/google/cel-go", "github.com/nats-io"} {
				if strings.HasPrefix(pkg, heavy) {
					t.Errorf("picker/%s depends on %s", name, strings.TrimSpace(pkg))
				}
			}
		}
	}
}
