package server

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// With engine-priority-producer, decisions carry the request's arrival time and its expected
// prefill time; by default they carry neither.
func TestEnginePriority(t *testing.T) {
	for _, plugin := range []string{"", "plugins:\n- {type: engine-priority-producer, parameters: {everyEndpoint: true}}\n"} {
		_, o := options(t, fleet.Options{Engines: 1})
		o.Config = filepath.Join(t.TempDir(), "epp.yaml")
		write(t, o.Config, fileHead+plugin)
		s := open(t, o)
		testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
		choose := func(body string) *request.Decision {
			r := &request.Request{Path: "/v1/completions", Headers: noHeaders{}, Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + body + `}`)}
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			d, err := s.chooser.Choose(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Done(request.Outcome{Complete: true, Status: 200})
			return d
		}
		before := time.Now().UnixMilli()
		d := choose(`one two three"`)
		if d.Prioritised != (plugin != "") {
			t.Errorf("%q: prioritised %v", plugin, d.Prioritised)
		}
		if after := time.Now().UnixMilli(); d.Prioritised && (d.Priority < before || d.Priority > after+10_000) {
			t.Errorf("priority %d, not between %d and a moment after %d", d.Priority, before, after)
		}
		if d = choose(`one two three","priority":5`); d.Prioritised {
			t.Errorf("%q: the client's own priority is replaced by %d", plugin, d.Priority)
		}
	}
}
