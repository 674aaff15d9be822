package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// If an engine publishes nothing under the configured topic, the status names both this topic and
// the engine's own. It no longer does once the engine's topic is read.
func TestOtherTopicIsNamed(t *testing.T) {
	fleet, o := options(t, fleet.Options{Engines: 1, Engine: sim.Options{Events: &sim.EventOptions{Topic: "kv-events"}}})
	right, err := os.ReadFile(o.Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Replace(right, []byte("topic: kv-events"), []byte("topic: kv@"), 1)
	if bytes.Equal(wrong, right) {
		t.Fatalf("no topic in the file: %s", right)
	}
	write := func(b []byte) {
		if err := os.WriteFile(o.Endpoints, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong)
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	n := 0
	ask := func() {
		n++
		body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":1}`, vocab.Name, strings.Repeat("what was said before ", 40)+strings.Repeat(fmt.Sprint("and now ", n), 20))
		r := &request.Request{Path: "/v1/completions", Headers: noHeaders{}, Body: []byte(body)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.chooser.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+fleet.Engines()[0].Addr()+r.Path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		d.Done(request.Outcome{Complete: true, Status: 200, Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 400, CachedTokens: 160}})
	}
	const named = `its publisher uses only the topic "kv-events"`
	testkit.Await(t, "the topic is named", func() bool {
		ask()
		st := s.Status().Endpoints[0]
		return st.Knowledge == "mismatched" && strings.Contains(st.Reason, named)
	})
	t.Logf("named after %d requests", n)
	if st := s.Status(); st.State != "degraded" || !strings.Contains(st.Reason, named) {
		t.Errorf("replica: %s, %s", st.State, st.Reason)
	}
	write(right)
	testkit.Await(t, "events are read, and no topic is named", func() bool {
		ask()
		st := s.Status().Endpoints[0]
		return st.Blocks > 0 && !strings.Contains(st.Reason, named)
	})
}
