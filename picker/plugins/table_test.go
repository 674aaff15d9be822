package plugins

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

func TestReadyProfiles(t *testing.T) {
	for _, name := range readyNames() {
		if p := profile(t, name); p.Picker == nil || p.Name != name {
			t.Errorf("profile %s: %+v", name, p)
		}
	}
}

func TestTableWith(t *testing.T) {
	own := plugin.Type{Name: "queue-scorer", Kind: plugin.KindScorer, Summary: "Own."}
	table := Builtin().With(own, plugin.Type{Name: "new-one"})
	if row, _ := table.Find("queue-scorer"); row.Summary != "Own." || len(table) != len(Builtin())+1 {
		t.Errorf("%+v, %d rows", row, len(table))
	}
	if i := slices.Index(table.Names(), "queue-scorer"); table[i-1].Kind != plugin.KindScorer || table[i+1].Kind == plugin.KindScorer {
		t.Errorf("a replaced row stands between a %s and a %s", table[i-1].Kind, table[i+1].Kind)
	}
	if _, ok := table.Find("prefix-cache"); !ok {
		t.Error("alias not found")
	}
}

func TestParameters(t *testing.T) {
	f := func(typ, params, want string) {
		t.Helper()
		_, err := try(typ, params)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s %s: %v, want %q", typ, params, err, want)
		}
	}
	// Numbers for which other pickers take their defaults.
	for typ, params := range map[string]string{
		"max-score-picker": `{"maxNumOfEndpoints":0}`, "token-load-scorer": `{"queueThresholdTokens":-1}`, "load-aware-scorer": `{"threshold":0}`,
		"no-hit-lru-scorer": `{"lruSize":-1}`, "active-request-scorer": `{"idleThreshold":-1,"maxBusyScore":7}`, "latency-scorer": `{"ttftWeight":0,"tpotWeight":0}`,
	} {
		f(typ, params, "<nil>")
	}
	f("prefix-cache-affinity-filter", `{"ttftSource":"guess"}`, "ttftSource must be prefillThroughput or latencyPredictor")
	f("prefix-cache-affinity-filter", `{"peakPrefillThroughput":-1}`, "peakPrefillThroughput")
	f("prefix-cache-scorer", `{"matchLengthWeight":2}`, "matchLengthWeight")
	f("session-affinity-scorer", `{"strategy":"guess"}`, "strategy")
	f("session-affinity-scorer", `{"sessionIdConfig":{"sources":[{"header":"a","attribute":"b"}]}}`, "sessionIdConfig.sources[0]")
	f("precise-prefix-cache-producer", `{"kvEventsConfig":{"zmqEndpoint":"tcp://*:5557","discoverPods":false}}`, "")
	f("precise-prefix-cache-producer", `{"kvEventsConfig":{"zmqEndpoint":"tcp://elsewhere:5557"}}`, "kvEventsConfig.zmqEndpoint must be tcp://")
	f("precise-prefix-cache-producer", `{"kvEventsConfig":{"zmqEndpoint":"udp://*:5557"}}`, "kvEventsConfig.zmqEndpoint must be tcp://")
	f("metrics-data-source", `{"port":70000}`, "port")
	f("metrics-data-source", `{"clientCertPath":"x"}`, "clientCertPath and clientKeyPath belong together")
	f("by-label", `{}`, "label is needed")
	f("label-selector-filter", `{"matchExpressions":[{"key":"a","operator":"Is"}]}`, "matchExpressions[0].operator")
	f("label-selector-filter", `{"matchExpressions":[{"key":"a","operator":"In"}]}`, "matchExpressions[0].values")
	f("prefix-cache-affinity-filter", `{"affinityThreshold":2}`, "affinityThreshold")
	f("utilization-filter", `{"conditions":[{"metric":"x","maxValue":1}]}`, "conditions[0].metric")
	f("utilization-filter", `{"conditions":[{"metric":"kv-cache-utilization","maxValue":2}]}`, "conditions[0].maxValue")
	f("topology-affinity-filter", `{"minAffinity":"shelf"}`, "minAffinity")
	f("unified-policy", `{"loadFactor":0}`, "loadFactor")
	f("data-parallel-profile-handler", `{"primaryPort":70000}`, "primaryPort")
	f("data-parallel-profile-handler", `{"targetPort":-1}`, "targetPort")
	f("utilization-detector", `{"metricsStalenessThreshold":"soon"}`, "metricsStalenessThreshold")
	f("concurrency-detector", `{"concurrencyMode":"bytes"}`, "concurrencyMode")
	f("session-id-producer", `{"headerName":"a","cookieName":"b"}`, "cookieName")
	f("session-id-producer", `{"ttl":"long"}`, "ttl")
	f("predicted-ttft-scorer", `{"ownWeight":-1}`, "ownWeight")
	f("approx-prefix-cache-producer", `{"blockSizeTokens":-1}`, "blockSizeTokens")
	f("file-discovery", `{}`, "path")
	f("single-profile-handler", `{}`, "<nil>")
}

func TestIndexParams(t *testing.T) {
	p := build(t, "prefix-cache-scorer", `{"hashBlockSize":64,"maxPrefixBlocksToMatch":256,"lruCapacityPerServer":31250,"autoTune":false}`).Producer
	want := &plugin.Producer{BlockTokens: 16, MatchBlocks: 256, BlocksPerEP: 31250, FixedCapacity: true}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
}

func bigFleet(n int) *fleet {
	list := make([]one, n)
	for i := range list {
		list[i] = one{
			load:   endpoint.Load{Requests: int64(i % 9), Waiting: int64(i % 3), Prefill: int64(i%3) * 1000, Tokens: int64(i) * 100, Rate: .5, LastFirst: t0.UnixNano()},
			held:   int32(i % 5 * 512),
			labels: map[string]string{"zone": "a"},
			gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: i % 4, Running: i % 9, KVUse: float64(i%10) / 10, Custom: map[string]float64{"g": float64(i)}}, BlockSize: 16, Blocks: 20000},
		}
	}
	return newFleet(list...)
}

func BenchmarkDecision(b *testing.B) {
	for _, name := range []string{"default", "weighted", "unified"} {
		for _, n := range []int{8, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				fl, h, r, plan := bigFleet(n), Single(profile(b, name)), ask(5000), &cycle.Plan{}
				b.ReportAllocs()
				for b.Loop() {
					c := fl.cycle(r)
					plan.Order = plan.Order[:0]
					if err := h.Handle(c, plan); err != nil {
						b.Fatal(err)
					}
					c.Free()
				}
			})
		}
	}
}

// BenchmarkDecisionInService is the default policy while the fleet changes: each decision follows a
// dispatch, a first token, an end, and the gauges that are read at 500 requests/s and one reading per
// second. Three endpoints hold the prompt.
func BenchmarkDecisionInService(b *testing.B) {
	for _, n := range []int{8, 100, 512, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fl, h, r, plan := bigFleet(n), Single(profile(b, "default")), ask(5000), &cycle.Plan{}
			for i := range fl.list {
				if fl.list[i].held = 0; i%(n/3) == 0 {
					fl.list[i].held = 4096
				}
			}
			eps, book, at, due := fl.pool.Snapshot().Endpoints, fl.pool.LoadTracker(), 0, 0.0
			b.ReportAllocs()
			for b.Loop() {
				ticket := endpoint.Ticket{}
				book.Open(&ticket, eps[at%n], endpoint.Work{Input: 5000, New: 900}, t0)
				ticket.FirstToken(t0)
				ticket.Release()
				for due += float64(n) / 500; due >= 1; due-- {
					at++
					eps[at%n].SetGauges(*fl.list[at%n].gauges)
				}
				c := fl.cycle(r)
				plan.Order = plan.Order[:0]
				if err := h.Handle(c, plan); err != nil {
					b.Fatal(err)
				}
				c.Free()
			}
		})
	}
}
