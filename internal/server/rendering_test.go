package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// A template that differs from the engines' is reported before the first request, and no longer
// once it is fixed.
func TestOtherTemplateIsNamedAtOnce(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2, Engine: sim.Options{Events: &sim.EventOptions{}}})
	o.ProbeRendering = true
	file := filepath.Join(o.Models[0].Path, "tokenizer_config.json")
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Replace(right, []byte(`"chat_template": "`), []byte(`"chat_template": "Be brief.`), 1)
	if bytes.Equal(wrong, right) {
		t.Fatal("the template was not found in the file")
	}
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong)
	s := open(t, o)
	states := func() (n map[string]int, reason string) {
		n = map[string]int{}
		for _, e := range s.Status().Endpoints {
			n[e.Knowledge]++
			if e.Reason != "" {
				reason = e.Reason
			}
		}
		return n, reason
	}
	testkit.Await(t, "both engines are found to render otherwise", func() bool { n, _ := states(); return n["mismatched"] == 2 })
	_, reason := states()
	if !strings.Contains(reason, "a chat is rendered there otherwise than here from byte 0 on") || !strings.Contains(reason, `here "Be brief.<|im_start|>`) || !strings.Contains(reason, "check --live") {
		t.Errorf("reason: %s", reason)
	}
	st := s.Status()
	if st.State != "degraded" || !strings.Contains(st.Reason, "byte 0") {
		t.Errorf("replica: %s, %s", st.State, st.Reason)
	}
	if f := st.Endpoints[0].Rendering[vocab.Name]; len(f) != 3 || f[0].Equal || f[0].Route != "render" {
		t.Errorf("rendering: %+v", f)
	}
	write(right)
	s.models.Registry().Reload()
	testkit.Await(t, "both engines are found to agree", func() bool { n, _ := states(); return n["exact"] == 2 })
	testkit.Eventually(t, func() string {
		if st := s.Status(); st.State != "ready" {
			return fmt.Sprintf("replica: %s, %s", st.State, st.Reason)
		}
		return ""
	})
}

// An engine that reports another version is another program: it starts a new incarnation, and its
// rendering is probed again.
func TestUpgradeInPlace(t *testing.T) {
	fleet, o := options(t, fleet.Options{Engines: 1})
	o.ProbeRendering = true
	s := open(t, o)
	is := func(version string) func() bool {
		return func() bool {
			e := s.Status().Endpoints[0]
			return e.EngineVersion == version && len(e.Rendering[vocab.Name]) == 3
		}
	}
	testkit.Await(t, "the engine's version", is("0.28.0"))
	before := s.pool.Snapshot().Endpoints[0]
	fleet.Engines()[0].SetVersion("0.33.0")
	s.served.Recheck(before.ID) // without this, only after half a minute
	testkit.Await(t, "another life", func() bool { return s.pool.Snapshot().Endpoints[0] != before })
	testkit.Await(t, "the version after the upgrade, and its rendering", is("0.33.0"))
}
