package server

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
)

func TestCapacityBytes(t *testing.T) {
	f := func(blocks, tokens, want int) {
		t.Helper()
		if got := capacityBytes(blocks, tokens); got != want {
			t.Errorf("%d blocks of %d tokens: %d bytes, want %d", blocks, tokens, got, want)
		}
	}
	f(31250, 16, 2_000_000)
	f(1<<20, 64, maxApproxBytes)
	f(math.MaxInt, math.MaxInt, maxApproxBytes)
}

// TestSessionSources: where the file says that session keys are, the scheduler
// looks for them.
func TestSessionSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epp.yaml")
	file := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: sticky-policy\n" +
		"- type: session-id-producer\n  parameters: {headerName: X-Conversation}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := config.Load(path, config.Options{Table: pd.Table()})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if s := c.Rules.Sessions; len(s) != 1 || s[0].Header != "x-conversation" {
		t.Errorf("%+v", s)
	}
}
