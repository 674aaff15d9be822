package explain

import (
	"bytes"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// TestWarmUp: the endpoint that was also sent the prompt is listed.
func TestWarmUp(t *testing.T) {
	var b bytes.Buffer
	e := explanation.Explanation{RequestID: "r", Choice: "c", WarmUp: &explanation.WarmUp{Endpoint: "10.0.0.2:8000", Missing: 900}}
	if err := WriteText(&b, &Decision{Explanation: e}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(b.String()), " "), "warm-up of 10.0.0.2:8000 · 900 prompt tokens were not cached there"; !strings.Contains(got, want) {
		t.Errorf("no %q in %q", want, got)
	}
}
