package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
)

// TestSessionSources: the scheduler reads session keys from the sources in the configuration file.
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
