package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// hot is a replica in front of two engines, and a popular prefix.
type hot struct {
	t     *testing.T
	s     *Server
	fleet *fleet.Fleet
	asked int
	first string // the endpoint to which the first request went
}

// body returns a request with the prefix and a unique ending.
func (h *hot) body() string {
	h.asked++
	return fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":20,"stream":true}`, vocab.Name, strings.Repeat("all of this is hot, and asked for ", 800)+fmt.Sprint(h.asked))
}

// choose places a request, which stays in flight with its first token seen.
func (h *hot) choose() (*request.Decision, explanation.Explanation) {
	h.t.Helper()
	r := &request.Request{ID: fmt.Sprint("hot-", h.asked), Path: "/v1/completions", Headers: noHeaders{}, Body: []byte(h.body()), Copyable: true}
	if err := request.Parse(r); err != nil {
		h.t.Fatal(err)
	}
	d, err := h.s.chooser.Choose(h.t.Context(), r)
	if err != nil {
		h.t.Fatal(err)
	}
	d.Observe(request.Event{Kind: request.EventFirstToken, At: monotime.Now()})
	r.Drop()
	h.t.Cleanup(func() { d.Done(request.Outcome{Status: 200, Complete: true, At: monotime.Now()}) })
	e, found := h.s.scheduler.Records().Explain(r.ID)
	if !found {
		h.t.Fatal("no record of the decision")
	}
	return d, e
}

// cached sends a request for the prefix to an engine and returns its number of cached tokens.
func (h *hot) cached(address string) int {
	h.t.Helper()
	resp, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(strings.Replace(h.body(), `"stream":true`, `"n":1`, 1)))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		h.t.Fatal(resp.Status, err)
	}
	return answer.Usage.Details.Cached
}

// heat requests the prefix until a warm-up is sent, and returns the warm-up's endpoint. It returns
// "" if none is sent for a hundred requests, or if a request is scheduled away from the engine with
// the prefix.
func (h *hot) heat() string {
	h.t.Helper()
	for range 100 {
		d, e := h.choose()
		if d.Endpoints[0] != h.first {
			return ""
		}
		if e.WarmUp != nil {
			return e.WarmUp.Endpoint
		}
	}
	return ""
}

// ended returns how many warm-ups ended, by result.
func (h *hot) ended(result string) (n float64) {
	h.t.Helper()
	families, err := h.s.registry.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "grapevine_warmup_requests_total" && m.GetLabel()[0].GetValue() == result {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestWarmUp: with warm-ups enabled, a request of one token copies a hot prefix to the idle engine,
// and the next request there hits it. Without, none is sent. An engine that fails a warm-up gets no
// second one, the failure is counted, and the engine's health is unaffected.
func TestWarmUp(t *testing.T) {
	for name, c := range map[string]struct {
		params string
		fails  bool
		result string
	}{"on": {"warmUp: true", false, "answered"}, "off": {"", false, ""}, "failing": {"warmUp: true", true, "failed"}} {
		t.Run(name, func(t *testing.T) {
			engines, o := options(t, fleet.Options{Engines: 2, Engine: sim.Options{Events: &sim.EventOptions{}, Speed: math.Inf(1)}})
			o.Config = filepath.Join(t.TempDir(), "epp.yaml")
			write(t, o.Config, fileHead+"plugins:\n- {type: predicted-ttft-scorer, parameters: {"+c.params+"}}\n")
			h := &hot{t: t, s: open(t, o), fleet: engines}
			testkit.Await(t, "ready", func() bool { return h.s.Status().State == "ready" })
			d, _ := h.choose()
			h.first = d.Endpoints[0]
			h.cached(h.first) // it computes the prefix
			second := engines.Engines()[0]
			if second.Addr() == h.first {
				second = engines.Engines()[1]
			}
			if c.fails {
				second.SetFaults(faults.Faults{ErrorNext: 1})
			}
			at := h.heat()
			if c.result == "" {
				if at != "" || h.ended("answered")+h.ended("failed")+h.ended("unanswered") != 0 || h.cached(second.Addr()) != 0 {
					t.Errorf("warmed up %q", at)
				}
				return
			}
			if at != second.Addr() {
				t.Fatalf("warmed up %q, not %s", at, second.Addr())
			}
			testkit.Await(t, "the warm-up has ended", func() bool { return h.ended(c.result) == 1 })
			ep := h.s.pool.Snapshot().Lookup(at)
			testkit.Await(t, "it is in the book no more", func() bool { return h.s.pool.LoadTracker().Load(ep, monotime.Now()).Requests == 0 })
			if e := ep.Tracker().Evidence(monotime.Now()); e.Good+e.Bad[0] != 0 || ep.Down() {
				t.Errorf("it is judged by the warm-up: %+v", e)
			}
			if cached := h.cached(at); (cached > 1000) != (c.result == "answered") {
				t.Errorf("%d tokens were cached", cached)
			}
			if _, e := h.choose(); c.result == "answered" {
				for _, k := range e.Candidates {
					if k.Endpoint == at && k.Matched["gpu"] < 1000 {
						t.Errorf("%v are known to be there", k.Matched)
					}
				}
			}
		})
	}
}
