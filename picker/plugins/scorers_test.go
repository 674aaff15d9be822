package plugins

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// TestScorers compares with manually computed scores.
func TestScorers(t *testing.T) {
	f := func(name string, fl *fleet, params string, want ...float64) {
		t.Helper()
		if got := fl.scores(t, ask(1000), name, params); !near(got, want) {
			t.Errorf("%s %s: %v, want %v", name, params, got, want)
		}
	}
	queue := func(waiting, running int, kv float64) one {
		return one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: waiting, Running: running, KVUse: kv}}}
	}
	gauges := newFleet(queue(0, 4, .25), queue(5, 1, 0), queue(20, 2, 1))
	f("queue-scorer", gauges, "", 1, .75, 0)
	f("queue-depth-scorer", newFleet(queue(3, 0, 0), queue(3, 0, 0)), "", 1, 1)
	f("running-requests-size-scorer", gauges, "", 0, 1, 2./3)
	f("running-requests-scorer", newFleet(queue(0, 7, 0)), "", 1)
	f("kv-cache-utilization-scorer", gauges, "", .75, 1, 0)
	f("load-aware-scorer", gauges, "", .5, .5*(1-5./128), .5*(1-20./128))
	f("load-aware-scorer", gauges, `{"threshold":10}`, .5, .25, 0)

	// Without gauges the load tracker is used.
	f("queue-scorer", newFleet(one{load: endpoint.Load{Waiting: 4, Requests: 4}}, one{}), "", 0, 1)
	f("running-requests-size-scorer", newFleet(one{load: endpoint.Load{Waiting: 1, Requests: 4}}, one{}), "", 0, 1)

	held := newFleet(one{held: 1000}, one{held: 250}, one{}, one{held: 500})
	f("prefix-cache-scorer", held, "", 1, .25, 0, .5)
	f("precise-prefix-cache-scorer", held, "", 1, .25, 0, .5)
	f("prefix-cache-scorer", held, `{"matchLengthWeight":0.5,"matchLengthScaleTokens":500}`, 1, .25, 0, .75)
	f("prefix-cache", newFleet(one{tiers: &[block.NumTiers]int32{100, 100, 100, 100}}), "", .28)
	f("prefix-cache-scorer", newFleet(one{held: 4000}), "", 1)

	// Queued prefill tokens count, including the new tokens of this request of 1,000.
	tokens := newFleet(one{load: endpoint.Load{Prefill: 1000, Tokens: 1 << 20}}, one{held: 1000}, one{held: 500}, one{load: endpoint.Load{Prefill: 1 << 30}})
	f("token-load-scorer", tokens, `{"queueThresholdTokens":4000}`, .5, 1, .875, 0)
	f("token-load-scorer", tokens, `{"queueThresholdTokens":0}`, 1-2000./4194304, 1, 1-500./4194304, 0)

	// (1000 - held) x (requests + 1): 4000, 2250, 3000 and 0.
	f("lmetric-scorer", newFleet(one{load: endpoint.Load{Requests: 3}}, one{held: 250, load: endpoint.Load{Requests: 2}}, one{held: 500, load: endpoint.Load{Requests: 5}}, one{held: 2000}), "", 0, .4375, .25, 1)
	f("lmetric-scorer", newFleet(one{}, one{}), "", 1, 1)

	busy := func(n int64) one { return one{load: endpoint.Load{Requests: n}} }
	active := newFleet(busy(0), busy(1), busy(4))
	f("active-request-scorer", active, "", 1, .75, 0)
	f("active-request-scorer", active, `{"idleThreshold":1,"maxBusyScore":0.5}`, 1, 1, 0)
	f("active-request-scorer", newFleet(busy(2), busy(4)), `{"maxBusyScore":0.5}`, .25, 0)
}

func TestLoRAScorer(t *testing.T) {
	lora := func(l *endpoint.LoRA) one { return one{gauges: &endpoint.Gauges{LoRA: l}} }
	f := newFleet(
		lora(&endpoint.LoRA{Max: 2, Running: []string{"a", "x"}}),
		lora(&endpoint.LoRA{Max: 2, Running: []string{"b"}}),
		lora(&endpoint.LoRA{Max: 2, Running: []string{"b"}, Waiting: []string{"a"}}),
		lora(&endpoint.LoRA{Max: 1, Running: []string{"b"}}),
		one{},
	)
	r := ask(10)
	r.Adapter = "a"
	if got := f.scores(t, r, "lora-affinity-scorer", ""); !near(got, []float64{1, .8, .6, 0, 0}) {
		t.Error(got)
	}
	r.Adapter, r.Target = "", "x"
	if got := f.scores(t, r, "lora-affinity-scorer", ""); got[0] != 1 {
		t.Error("the target model names the adapter:", got)
	}
}

func TestSessionAffinity(t *testing.T) {
	f := newFleet(one{}, one{}, one{})
	r := ask(10)
	r.Session = "s"
	if got := f.scores(t, r, "session-affinity-scorer", ""); !near(got, []float64{0, 0, 0}) {
		t.Error("unknown session:", got)
	}
	if got := f.kept(t, r, "session-affinity-filter", ""); got != "012" {
		t.Error("unknown session:", got)
	}
	f.sessions.Bind(sessions.Binding{Session: sessions.KeyOf("s"), Endpoint: 2, At: t0})
	if got := f.scores(t, r, "session-affinity-scorer", ""); !near(got, []float64{0, 0, 1}) {
		t.Error(got)
	}
	if got := f.kept(t, r, "session-affinity-filter", ""); got != "2" {
		t.Error(got)
	}
	r.Session = base64.StdEncoding.EncodeToString([]byte("ns/e1"))
	if got := f.kept(t, r, "session-affinity-filter", ""); got != "1" {
		t.Error("token of another picker:", got)
	}
	f.sessions.Bind(sessions.Binding{Session: sessions.KeyOf(r.Session), Endpoint: 2, At: t0})
	if got := f.kept(t, r, "session-affinity-filter", ""); got != "1" {
		t.Error("a token, and where somebody who shares it went:", got)
	}
	r.Session = base64.StdEncoding.EncodeToString([]byte("ns/gone"))
	f.sessions.Bind(sessions.Binding{Session: sessions.KeyOf(r.Session), Endpoint: 2, At: t0})
	if got := f.kept(t, r, "session-affinity-filter", ""); got != "012" {
		t.Error("token of an endpoint that is gone:", got)
	}
	p := build(t, "session-affinity-scorer", `{"sessionIdConfig":{"sources":[{"header":"X-Own"},{"cookie":"sid"}]}}`)
	if len(p.Producer.Sessions) != 2 || p.Producer.Sessions[0].Header != "x-own" {
		t.Errorf("%+v", p.Producer)
	}
}

func TestNoHit(t *testing.T) {
	f := newFleet(one{}, one{}, one{}, one{})
	s := build(t, "no-hit-lru-scorer", `{"lruSize":2}`).Scorer.(*noHitScorer)
	run := func(want ...float64) {
		t.Helper()
		c := f.cycle(ask(100))
		defer c.Free()
		got := make([]float64, c.Len())
		s.Score(c, got)
		if !near(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	chosen := func(i int) {
		c := f.cycle(ask(100))
		defer c.Free()
		s.Chosen(c, c.At(i).Endpoint)
	}
	run(1, 2./3, 1./3, 0) // no endpoint had one: in order
	chosen(0)
	chosen(1)
	run(1./3, 0, 1, 2./3)
	chosen(0) // again: 1 is older
	run(0, 1./3, 1, 2./3)
	chosen(2) // forgets 1
	run(1./3, 1, 0, 2./3)
	f.list[3].held = 50
	run(.5, .5, .5, .5)
	chosen(3) // not cold: changes nothing
	f.list[3].held = 0
	run(1./3, 1, 0, 2./3)
}

func TestContextLength(t *testing.T) {
	label := func(v string) one { return one{labels: map[string]string{labelContext: v}} }
	f := newFleet(label("0-2000"), label("0 - 10000"), label("1000-1000"), label("2000-9000"), label("0-500"), label("x"), one{})
	want := []float64{
		.3 + .7*(.7/(1+.2)+.3*.5), .3 + .7*(.7/2+.3*.9), 1, .3 / 2, .3 / 1.5, 0, .5,
	}
	if got := f.scores(t, ask(1000), "context-length-aware", ""); !near(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := f.kept(t, ask(1000), "context-length-aware", `{"enableFiltering":true}`); got != "0126" {
		t.Error(got)
	}
	if p := build(t, "context-length-aware", ""); p.Filter != nil {
		t.Error("filters without being asked")
	}
}

// simple is a cost model with round numbers: 1 ms per token, 10 ms base, and decode steps of 10 ms
// plus 1 ms per sequence.
var simple = endpoint.Cost{Base: .01, PerToken: 1e-3, PerPair: 1e-12, Step: .01, PerSeq: 1e-3, PerContext: 1e-12}

// taught is the same model, learned from answers.
func taught() *endpoint.Cost {
	c := simple
	c.PrefillSeen, c.DecodeSeen = trustedSamples, trustedSamples
	return &c
}

func TestLatencyScorer(t *testing.T) {
	e := func(prefill, requests int64) one {
		waiting := int64(0)
		if prefill > 0 {
			waiting = 1
		}
		return one{load: endpoint.Load{Requests: requests, Waiting: waiting, Prefill: prefill}, cost: taught()}
	}
	// Expected first tokens of a request of 100 tokens: .110, .210, .310 s;
	// steps of 12, 12 and 13 ms.
	f := newFleet(e(0, 1), e(100, 2), e(200, 3))
	score := func(ttft, tpot time.Duration, params string) []float64 {
		r := ask(100)
		r.SLOTTFT, r.SLOTPOT = ttft, tpot
		got := f.scores(t, r, "latency-scorer", params)
		for i := range got {
			got[i] = float64(int(got[i]*1000+.5)) / 1000
		}
		return got
	}
	check := func(name string, got []float64, want ...float64) {
		t.Helper()
		if !near(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	all := time.Second
	check("all meet it: the fullest", score(all, all, ""), .01, .41, 1)
	check("all meet it: the emptiest", score(all, all, `{"headroomSelectionStrategy":"most"}`), 1, .61, .01)
	check("one meets it", score(150*time.Millisecond, all, ""), .51, 0, 0)
	check("no target: the earliest", score(0, 0, ""), 1, .61, .01)
	check("one target, the other time does not count: the fullest", score(all, 0, ""), .01, .51, 1)
	check("the emptiest", score(all, 0, `{"headroomSelectionStrategy":"most"}`), 1, .51, .01)
	check("one meets the only target", score(150*time.Millisecond, 0, ""), .51, 0, 0)
	check("two meet the other only target", score(0, 12500*time.Microsecond, ""), .51, .51, 0)
	check("tokens slow at two, both slow at one", score(250*time.Millisecond, time.Millisecond, ""), .01, 1, 0)
	idle := newFleet(e(200, 3), e(0, 0))
	r := ask(100)
	r.SLOTTFT = time.Millisecond
	if got := idle.scores(t, r, "latency-scorer", ""); !near(got, []float64{0, .51}) {
		t.Error("idle endpoints first:", got)
	}
	// Without learned latencies: half of the cache free and a queue of 1 of 4; a quarter, the
	// longest queue and half of the prompt; all, none, nothing.
	young := newFleet(one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: 1, KVUse: .5}}}, one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: 4, KVUse: .75}}, held: 50}, one{gauges: &endpoint.Gauges{}})
	for params, want := range map[string][]float64{
		``: {.42, .25, .67}, `{"compositeKVWeight":0,"compositePrefixWeight":3}`: {.19, .38, .25},
		`{"compositeKVWeight":0,"compositeQueueWeight":0,"compositePrefixWeight":0}`: {.5, .25, 1},
	} {
		if got := young.scores(t, ask(100), "latency-scorer", params); !near(got, want) {
			t.Errorf("nothing learned, %s: %v, want %v", params, got, want)
		}
	}
}

// TestHandOut: clients without a session name receive a token for their endpoint.
func TestHandOut(t *testing.T) {
	f := newFleet(one{}, one{})
	r := ask(100)
	c := f.cycle(r)
	defer c.Free()
	hand := SessionHeader("x-session-token")
	token := func(name string) []request.HeaderSet {
		return []request.HeaderSet{{Name: "x-session-token", Value: base64.StdEncoding.EncodeToString([]byte(name))}}
	}
	for session, want := range map[string][]request.HeaderSet{
		"":                 token("ns/e1"),
		"turn-7":           nil,
		"bnMvZTA=":         token("ns/e1"), // ns/e0, which was not available
		"AAECAwQFBgcICQoL": nil,            // base64, but not a name
	} {
		r.Session = session
		if diff := cmp.Diff(want, hand(c, 1)); diff != "" {
			t.Errorf("session %q (-want +got):\n%s", session, diff)
		}
	}
	producers := map[string]string{
		``: "x-session-token", `{"headerName":"X-Own"}`: "x-own", `{"algorithm":"session_id_header"}`: "",
		`{"sessionIdConfig":{"sources":[{"cookie":"sid"}]}}`: "",
	}
	for params, want := range producers {
		got := ""
		if p := build(t, "session-affinity-scorer", params).Producer; p != nil {
			got = p.TokenHeader
		}
		if got != want {
			t.Errorf("%s hands out in %q, want %q", params, got, want)
		}
	}
}
