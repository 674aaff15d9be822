package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/server"
)

// TestRefusals checks the answers that the picker gives instead of an engine.
func TestRefusals(t *testing.T) {
	for _, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{
				kind:   kind,
				server: func(o *server.Options) { o.MaxBody = 100_000 },
				params: func(p *envoyconf.Params) { p.SubsetHeader = "x-test-subset" },
			})
			fine := fmt.Sprintf(`{"model":%q,"prompt":"once upon a time","max_tokens":4}`, vocab.Name)
			long := fmt.Sprintf(`{"model":%q,"prompt":%q}`, vocab.Name, strings.Repeat("long ", 40_000))
			r.answers(fine, "", 200, "")
			r.answers(fine, r.fleet.Engines()[2].Addr(), 200, "")
			r.answers(fine[:len(fine)-1], "", 400, "rejected-bad-request")
			r.answers(`{"prompt":"of the only model"}`, "", 200, "")
			resp, err := r.client.HTTP.Get(r.client.URL + "/flush_cache")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("a call that controls an engine: status %d", resp.StatusCode)
			}
			r.answers(long, "", 413, "rejected-too-large")
			r.answers(fine, "127.0.0.1:1", 503, "rejected-no-endpoints")
			r.answers(fine, "", 200, "")
			r.settle()
			streams(r)
			if n := r.envoy.Stats(t, "ext_proc.picker.")["http.inference.ext_proc.picker.spurious_msgs_received"]; n != 0 {
				t.Errorf("%d spurious messages", n)
			}
		})
	}
}

// answers posts a completion and checks status and drop reason. An error must have the form of the
// OpenAI API.
func (r *rig) answers(body, subset string, status int, drop string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.client.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if subset != "" {
		req.Header.Set("X-Test-Subset", subset)
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	if got := resp.Header.Get("x-llm-d-request-dropped-reason"); resp.StatusCode != status || got != drop {
		r.t.Errorf("%.60s: status %d %q, want %d %q: %.200s", body, resp.StatusCode, got, status, drop, raw)
	}
	if status == http.StatusOK {
		return
	}
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		r.t.Errorf("%.60s: %s is not an error object: %v", body, raw, err)
	}
}
