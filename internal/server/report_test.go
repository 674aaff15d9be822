package server

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// If an engine has unreported cache contents, the next request asks it for a full report, once.
func TestFullReportIsAskedForOnce(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1, Engine: sim.Options{Events: &sim.EventOptions{}}})
	o.FullReport = true
	s := open(t, o)
	testkit.Await(t, "ready, and the engine's kind is known", func() bool {
		eps := s.pool.Snapshot().Endpoints
		return s.Status().State == "ready" && len(eps) == 1 && eps[0].Gauges().Engine == endpoint.EngineVLLM
	})
	ask := func(prompt string) *request.Decision {
		r := &request.Request{Path: "/v1/completions", Headers: noHeaders{}, Body: []byte(`{"model":"` + vocab.Name + `","prompt":"` + strings.Repeat(prompt+" ", 200) + `"}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.chooser.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := ask("first")
	if d.BodyExtra != "" {
		t.Errorf("asked without a reason: %s", d.BodyExtra)
	}
	// Its engine had more than was known.
	d.Done(request.Outcome{Complete: true, Status: 200, Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 1000, CachedTokens: 900}})
	if d = ask("second"); !strings.Contains(d.BodyExtra, "kv_cache_report_mode") {
		t.Errorf("not asked: %q", d.BodyExtra)
	}
	d.Done(request.Outcome{Complete: true, Status: 200})
	if d = ask("third"); d.BodyExtra != "" {
		t.Errorf("asked twice: %s", d.BodyExtra)
	}
	d.Done(request.Outcome{Complete: true, Status: 200})
}

type noHeaders struct{}

func (noHeaders) Get(string) string { return "" }
