package server

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/request"
)

func TestJudgeDistrustsARecordOfOverPredictions(t *testing.T) {
	var j judge
	for i := range judgeMemory {
		if distrust, _ := j.add(1, verdict{over: i%4 == 0}); distrust {
			t.Fatalf("distrusted after %d comparisons, a quarter of them over", i+1)
		}
	}
	distrusted := false
	for range judgeMemory {
		d, _ := j.add(1, verdict{over: true})
		distrusted = distrusted || d
	}
	if !distrusted {
		t.Error("nothing but over-predictions, and trusted")
	}
	trust := false
	for range judgeTrust {
		_, trust = j.add(2, verdict{})
	}
	if !trust {
		t.Error("a run of right predictions does not count")
	}
}

// Where an engine had more than was known, the next request asks it to say what, once.
func TestFullReportIsAskedForOnce(t *testing.T) {
	_, o := options(t, sim.FleetOptions{Engines: 1, Engine: sim.Options{Events: &sim.EventOptions{}}})
	o.FullReport = true
	s := open(t, o)
	await(t, "ready", func() bool { return s.Status().State == "ready" })
	ask := func() string {
		r := &request.Request{Path: "/v1/completions", Headers: noHeaders{}, Body: []byte(`{"model":"` + vocab.Name + `","prompt":"hello"}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := chooser{s}.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		d.Done(picker.Outcome{Complete: true, Status: 200})
		return d.BodyExtra
	}
	if got := ask(); got != "" {
		t.Errorf("asked without a reason: %s", got)
	}
	s.judge.add(s.pool.Snapshot().Endpoints[0].ID, verdict{under: true})
	if got := ask(); !strings.Contains(got, "kv_cache_report_mode") {
		t.Errorf("not asked: %q", got)
	}
	if got := ask(); got != "" {
		t.Errorf("asked twice: %s", got)
	}
}
