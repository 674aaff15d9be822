//go:build engines

package engines

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/events"
	live "github.com/grapevine-epp/grapevine/internal/engines"
	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// live checks that `grapevine check` finds no problem with a complete vLLM, and finds a wrong topic
// and a wrong template.
func (r *realRig) live(t *testing.T) {
	e := r.fleet[0]
	right := live.Target{
		Address: strings.TrimPrefix(e.url, "http://"), Models: []string{tiny}, Streams: events.PortStreams("127.0.0.1", e.events, e.replay, 1, "kv-events"),
	}
	wrong := right
	wrong.Streams = events.PortStreams("127.0.0.1", e.events, e.replay, 1, "wrong")
	config := filepath.Join(writeTiny(t), "tokenizer_config.json")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(b, []byte(`"chat_template": "`), []byte(`"chat_template": "Be brief.`), 1)
	if bytes.Equal(b, other) {
		t.Fatal("the template was not found in the file")
	}
	if err := os.WriteFile(config, other, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, folder string
		target       live.Target
		says         []string
	}{
		{"as it is", r.model, right, nil},
		{"another topic", r.model, wrong, []string{`but "wrong" is configured, so none is received`}},
		{"another template", filepath.Dir(config), right, []string{"from byte 0 on", "from byte 0 on", "from byte 0 on"}},
	} {
		models := prompt.NewModels(prompt.ModelsOptions{})
		defer models.Close()
		models.Set([]prompt.Config{{Path: c.folder, Options: prompt.Options{Name: tiny}}})
		if err := models.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := live.Examine(t.Context(), c.target, models)
		t.Logf("%s: %+v", c.name, *l)
		if len(l.Problems) != len(c.says) {
			t.Fatalf("%s: problems %q, want %q", c.name, l.Problems, c.says)
		}
		for i, says := range c.says {
			if !strings.Contains(l.Problems[i], says) {
				t.Errorf("%s: %q, without %q", c.name, l.Problems[i], says)
			}
		}
		if l.Engine != "vllm" || !strings.HasPrefix(l.Version, "0.32") || l.BlockSize != tinyBlock || l.Cached < tinyBlock || len(l.Rendering[tiny]) != 3 || len(l.Streams) != 1 || l.Streams[0].Bytes == 0 {
			t.Errorf("%s: %+v", c.name, *l)
		}
	}
	if resp, err := http.Get(e.url + "/health"); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the engine afterwards: %v", err)
	}
}
