package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// decisionsIn returns the lines about decisions.
func decisionsIn(t *testing.T, log *parts.Output) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m["msg"] == "decision" {
			out = append(out, m)
		}
	}
	return out
}

// TestDecisionLog: each decision has one line, once its request has ended, with prediction and outcome, and no prompt.
func TestDecisionLog(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	var log parts.Output
	o.Log, o.LogDecisions = slog.New(slog.NewJSONHandler(&log, nil)), 1
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	ask := func(id string) *request.Decision {
		r := &request.Request{ID: id, Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"a secret prompt"}`)}
		if err := request.Parse(r); err != nil {
			t.Fatal(err)
		}
		d, err := s.chooser.Choose(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, open := ask("first"), ask("open")
	first.Release(request.Outcome{Status: 503, Served: first.Endpoints[0], Usage: request.Usage{Seen: true, OutputTokens: 7}})
	testkit.Await(t, "the line of the first request", func() bool { return len(decisionsIn(t, &log)) > 0 })
	got := decisionsIn(t, &log)
	if len(got) != 1 {
		t.Fatalf("%d lines, want 1: %v", len(got), got)
	}
	for name, want := range map[string]any{"request_id": "first", "model": vocab.Name, "endpoint": first.Endpoints[0], "status": 503., "served": first.Endpoints[0], "output_tokens": 7.} {
		if got[0][name] != want {
			t.Errorf("%s = %v, want %v", name, got[0][name], want)
		}
	}
	if id, _ := got[0]["decision"].(string); !strings.HasSuffix(id, ".1") || got[0]["predicted_ms"] == nil || got[0]["runner_up"] == "" {
		t.Errorf("line %v has no decision, prediction or runner-up", got[0])
	}
	open.Release(request.Outcome{Status: 200})
	testkit.Await(t, "the second line", func() bool { return len(decisionsIn(t, &log)) == 2 })
	if strings.Contains(log.String(), "secret") {
		t.Error("the log has a prompt")
	}
}

// TestDecisionLogOmits: of many decisions, a limited number gets lines, and the next line has the number of the others.
func TestDecisionLogOmits(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	s := open(t, o)
	testkit.Await(t, "ready", func() bool { return s.Status().State == "ready" })
	var log parts.Output
	l := &decisionLog{records: s.scheduler.Records(), share: 1, sign: func(*explanation.Explanation) {}, log: slog.New(slog.NewJSONHandler(&log, nil)), next: 1}
	ask := func(n int) {
		for range n {
			r := &request.Request{ID: "r", Headers: http.Header{}, Path: "/v1/completions", Body: []byte(`{"model":"` + vocab.Name + `","prompt":"x"}`)}
			if err := request.Parse(r); err != nil {
				t.Fatal(err)
			}
			d, err := s.chooser.Choose(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			d.Release(request.Outcome{Status: 200})
		}
	}
	ask(mostLogged + 30)
	l.step(time.Now())
	if got := len(decisionsIn(t, &log)); got != mostLogged {
		t.Errorf("%d lines, want %d", got, mostLogged)
	}
	ask(1)
	l.step(time.Now())
	if got := decisionsIn(t, &log); len(got) != mostLogged+1 || got[mostLogged]["omitted"] != 30. {
		t.Errorf("last line %v of %d, want 30 omitted", got[len(got)-1], len(got))
	}
	n := 0
	for number := range uint64(10_000) {
		if sampled(number, .1) {
			n++
		}
	}
	if n < 900 || n > 1100 {
		t.Errorf("%d of 10,000 decisions are in a sample of a tenth", n)
	}
}
