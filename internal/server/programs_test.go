package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestProgramsWait: a replica keeps the request of a new agent run while the engine's memory is full of another
// run, and passes a request without a run. When the replica stops, the kept request goes to an engine.
func TestProgramsWait(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1, Engine: sim.Options{Core: engine.Config{BlockSize: 16, Blocks: 60}}})
	o.ConfigText = `{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: predicted-ttft-scorer}, {type: program-admission}],
		schedulingProfiles: [{name: default, plugins: [{pluginRef: predicted-ttft-scorer}]}]}`
	s := open(t, o)
	testkit.Await(t, "ready, with the engine's gauges", func() bool {
		st := s.Status()
		return st.State == "ready" && len(st.Endpoints) == 1 && s.pool.Snapshot().Endpoints[0].Reading(0).Capacity > 0
	})
	ask := func(run string) *request.Decision {
		r := &request.Request{ID: "of " + run, Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + strings.Repeat("word "+run, 400) + `"}`)}
		if run != "" {
			r.Headers.(http.Header).Set("x-agent-run-id", run)
		}
		if err := request.Parse(r); err != nil {
			t.Error(err)
			return nil
		}
		d, err := s.chooser.Choose(t.Context(), r)
		if err != nil {
			t.Errorf("run %q: %v", run, err)
			return nil
		}
		return d
	}
	first := ask("a")
	if st := s.programs.Status(); len(st) != 1 || st[0].Footprint < st[0].Limit/2 || st[0].Limit == 0 {
		t.Fatalf("%+v after the first run, want more than half of a known limit", st)
	}
	second := make(chan *request.Decision)
	began := time.Now()
	go func() { second <- ask("b") }()
	testkit.Await(t, "a kept request", func() bool { st := s.programs.Status(); return len(st) == 1 && st[0].Kept == 1 })
	if st := s.Status().Programs; len(st) != 1 || st[0].Model == "" || st[0].Programs != 2 || st[0].Kept != 1 || st[0].Limit < st[0].Footprint {
		t.Errorf("status %+v, want two runs, of which one waits", st)
	}
	if free := ask(""); free != nil {
		free.Release(request.Outcome{Status: 200})
	}
	select {
	case <-second:
		t.Fatalf("the second run passed after %v, while the first one fills the memory", time.Since(began))
	default:
	}
	s.stopQueue() // as a replica does that stops
	d := <-second
	for _, d := range []*request.Decision{first, d} {
		if d != nil {
			d.Release(request.Outcome{Status: 200})
		}
	}
	testkit.Await(t, "no kept request", func() bool { return s.programs.Status()[0].Kept == 0 })
}
