package picker

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// predicting sets every term of a prediction.
type predicting struct{}

func (predicting) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		c.Predict(k, cycle.Prediction{Wait: .001, Own: .002 * float64(k+1), Base: .004, Load: .008, Others: .016, Zone: .032})
		scores[k] = -float64(c.Work(k).New)
	}
}

// splitting is a handler whose second endpoint computes prompts of 1000 tokens or more.
type splitting struct{ p *cycle.Profile }

func (h splitting) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, h.p.Run(c).Order...)
	if c.Request.InputTokens < 1000 {
		return nil
	}
	best, other := plan.Order[0], plan.Order[1]
	plan.New = 1
	plan.Headers = append(plan.Headers, request.HeaderSet{Name: request.HeaderPrefiller, Value: c.All(other).Address})
	plan.Stages = append(plan.Stages, cycle.Stage{Kind: cycle.StagePrefill, Outcome: cycle.StageSplit, Chosen: other, Missing: 40, Whole: .5, Split: .25, Revision: "v1"})
	plan.Also = append(plan.Also, cycle.Part{Index: other, Work: c.WorkAt(best), Holds: true, Leads: true, Moves: 30})
	return nil
}

// considering is a remote cluster with every term, that never takes a request.
type considering struct{ *scriptedClusters }

func (considering) Offer(c *cycle.Cycle, refused error) error {
	c.Consider(cycle.RemoteTerms{
		Cluster: "b", Gateway: "192.0.2.1:80", Reason: cycle.RemoteCostlier, RoundTrip: .1, Egress: .2, Late: .3, Held: 5, Age: time.Second,
		Prediction: cycle.Prediction{Wait: .001, Own: .002, Base: .004, Fetch: .008, Load: .016, Others: .032, Zone: .064},
	})
	c.Consider(cycle.RemoteTerms{Cluster: "a", Here: true})
	return refused
}

// everything returns a scheduler whose decisions have every part.
func everything(t *testing.T, reg prometheus.Registerer) *Scheduler {
	t.Helper()
	pool := endpoint.NewPool(endpoint.PoolOptions{Now: func() time.Time { return t0 }, Zone: "here"})
	list := specs(5)
	for i := range list {
		list[i].Labels = map[string]string{"topology.kubernetes.io/zone": []string{"there", "there", "there", "there", "here"}[i]}
	}
	pool.Set(list)
	eps := pool.Snapshot().Endpoints
	eps[3].Tracker().SetFull(t0, 3*time.Second)
	set := health.NewSet(health.Options{})
	for _, ep := range eps {
		set.Join(int(ep.ID), "m", t0)
		seen := health.Evidence{Good: 200, Answered: health.Never, Moved: health.Never}
		if ep == eps[2] {
			seen.Good, seen.Bad[health.Failed] = 0, 8
		}
		set.Receive("", int(ep.ID), seen, t0.Add(-4*time.Second))
	}
	set.Step(t0.Add(-4 * time.Second))
	pool.SetHealth(set.Snapshot())
	profile := testProfile()
	profile.Filters = append(profile.Filters, cycle.ProfileFilter{Name: "far", Filter: allBut{eps[4]}})
	profile.Scorers = append(profile.Scorers, cycle.ProfileScorer{Name: "predicting", Weight: 2, Scorer: predicting{}}, cycle.ProfileScorer{Name: "warms", Scorer: warms{}})
	return newScheduler(t, Options{
		Pool: pool, Matcher: &fakeMatcher{tokens: []int32{960, 480}}, Registerer: reg, RemoteClusters: considering{newClusters(nil)},
		Rules: &Rules{
			Handler: splitting{profile},
			Names:   request.Names{Objectives: map[string]int{"vip": 7}, Rewrites: map[string]request.Rewrite{"m": {{Model: "m-1", Weight: 1}}}},
		},
		WarmUps: WarmUps{Takes: func(*request.Request) bool { return true }, Send: func(*WarmUp, func(time.Time, int)) bool { return true }},
	})
}

// allBut is a filter that drops one endpoint.
type allBut struct{ ep *endpoint.Endpoint }

func (f allBut) Filter(c *cycle.Cycle, keep []bool) {
	for k := range keep {
		keep[k] = c.At(k).Endpoint != f.ep
	}
}

// play makes decisions of every kind, and ends their requests.
func play(t *testing.T, s *Scheduler) {
	t.Helper()
	ask := func(id string, tokens int, change func(*request.Request)) *request.Decision {
		r := chatRequest(id, tokens)
		r.Objective, r.ChunkKeys = "vip", []block.Key{1}
		r.Chunks.Bytes = []byte("prompt")
		if change != nil {
			change(r)
		}
		d, err := s.Choose(t.Context(), r)
		if err != nil {
			return nil
		}
		return d
	}
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	usage := request.Usage{Seen: true, CachedSeen: true, PromptTokens: 990, CachedTokens: 900, OutputTokens: 10}

	split := ask("split", 1000, nil)
	split.Observe(request.Event{Kind: request.EventHeaders, At: at(10), Status: 200, Served: split.Endpoints[0], KVTransfer: kvtransfer.Report{Known: true, Prefill: 20 * time.Millisecond, Decode: 5 * time.Millisecond}})
	split.Observe(request.Event{Kind: request.EventFirstToken, At: at(40)})
	split.Done(request.Outcome{At: at(100), Status: 200, Complete: true, Usage: usage, Served: split.Endpoints[0]})

	whole := ask("whole", 999, nil)
	whole.Observe(request.Event{Kind: request.EventHeaders, At: at(10), Status: 200, Served: whole.Endpoints[0]})
	whole.Observe(request.Event{Kind: request.EventFirstToken, At: at(30)})
	whole.Observe(request.Event{Kind: request.EventTokens, At: at(90), Tokens: 9})
	whole.Done(request.Outcome{At: at(100), Status: 200, Complete: true, Usage: usage, Served: whole.Endpoints[0]})

	moved := ask("moved", 998, nil)
	moved.Observe(request.Event{Kind: request.EventHeaders, At: at(10), Status: 500, Served: moved.Endpoints[1], Attempts: 2})
	moved.Done(request.Outcome{At: at(20), Status: 500, Complete: true, Served: moved.Endpoints[1], Attempts: 2})

	ask("unseen", 997, func(r *request.Request) { r.Stream = false }).Done(request.Outcome{At: at(70), Status: 200, Unseen: true})
	ask("broken", 996, nil).Done(request.Outcome{At: at(70), Status: 200, Broken: true})
	unreached := ask("unreached", 995, nil)
	unreached.Observe(request.Event{Kind: request.EventHeaders, At: at(5), Status: 503, Local: true})
	unreached.Done(request.Outcome{At: at(6), Status: 503, Complete: true})
	ask("refused", 10, func(r *request.Request) { r.HasSubset = true })
	ask("continued", 10, func(r *request.Request) { r.Previous, r.Kind = "resp_1", request.KindResponses }).Done(request.Outcome{})
}

// unset are the fields of an explanation that the server or the queue fills, or that other tests
// check.
var unset = []string{"Replica", "Decision", "Queue", "Omitted", "Candidates.Load", "Candidates.Predicted.Fetch", "Predicted.Fetch", "Health.Used"}

// TestExplanationHasEveryField compares the explanations of decisions of every kind with those in
// testdata. Each field of an explanation has a value in one of them. Set GRAPEVINE_REWRITE to
// rewrite the file.
func TestExplanationHasEveryField(t *testing.T) {
	s := everything(t, nil)
	play(t, s)
	all := s.Records().Last(100)
	slices.Reverse(all)
	found := map[string]bool{}
	var visit func(name string, v reflect.Value)
	visit = func(name string, v reflect.Value) {
		if slices.Contains(unset, name) {
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() {
				v = reflect.New(v.Type().Elem())
			}
			visit(name, v.Elem())
		case reflect.Slice:
			found[name] = found[name] || v.Len() > 0
			if v.Type().Elem().Kind() == reflect.Struct {
				visit(name, reflect.Zero(v.Type().Elem()))
				for i := range v.Len() {
					visit(name, v.Index(i))
				}
			}
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				found[name] = found[name] || !v.IsZero()
				return
			}
			for i := range v.NumField() {
				visit(strings.TrimPrefix(name+"."+v.Type().Field(i).Name, "."), v.Field(i))
			}
		default:
			found[name] = found[name] || !v.IsZero()
		}
	}
	for _, e := range all {
		visit("", reflect.ValueOf(e))
	}
	for name, ok := range found {
		if !ok {
			t.Errorf("no explanation has a value of %s", name)
		}
	}
	text, err := json.MarshalIndent(struct {
		Numbers      []uint64
		Explanations []explanation.Explanation
	}{numbers(all), all}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	compareWith(t, "testdata/explanations.json", string(text)+"\n")
}

func numbers(all []explanation.Explanation) (list []uint64) {
	for _, e := range all {
		list = append(list, e.Number)
	}
	return list
}

// TestMetricsOfDecisions compares the metrics after decisions of every kind with those in testdata.
func TestMetricsOfDecisions(t *testing.T) {
	reg := prometheus.NewRegistry()
	play(t, everything(t, reg))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fmt.Fprintf(&text, "%s%s %s\n", f.GetName(), labels(m), value(m))
		}
	}
	compareWith(t, "testdata/metrics.txt", text.String())
}

func labels(m *dto.Metric) string {
	var list []string
	for _, l := range m.GetLabel() {
		list = append(list, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if list == nil {
		return ""
	}
	return "{" + strings.Join(list, ",") + "}"
}

func value(m *dto.Metric) string {
	switch {
	case m.Histogram != nil:
		return fmt.Sprintf("count %d sum %.6g", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
	case m.Gauge != nil:
		return fmt.Sprintf("%.6g", m.Gauge.GetValue())
	default:
		return fmt.Sprintf("%.6g", m.GetCounter().GetValue())
	}
}

// compareWith compares text with a file.
func compareWith(t *testing.T, file, text string) {
	t.Helper()
	if os.Getenv("GRAPEVINE_REWRITE") != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-file +now):\n%s", file, diff)
	}
}
