package sizing

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	demand "github.com/grapevine-epp/grapevine/picker/sizing"
)

func TestParseTarget(t *testing.T) {
	for s, want := range map[string]Target{
		"p90=2s":               {FirstToken, .9, 2 * time.Second},
		"first-token-p99=2s":   {FirstToken, .99, 2 * time.Second},
		"per-token-p95=60ms":   {PerToken, .95, 60 * time.Millisecond},
		"end-to-end-p99.9=30s": {EndToEnd, .999, 30 * time.Second},
	} {
		if got, err := ParseTarget(s); err != nil || math.Abs(got.Part-want.Part) > 1e-9 || got.Of != want.Of || got.Limit != want.Limit {
			t.Errorf("ParseTarget(%q) = %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "p90", "p90=", "p90=2", "p90=-1s", "p40=1s", "p100=1s", "pNaN=1s", "90=1s", "decode-p90=1s", "per-token=1s"} {
		if got, err := ParseTarget(s); !errors.Is(err, demand.ErrTarget) {
			t.Errorf("ParseTarget(%q) = %+v, %v, want ErrTarget", s, got, err)
		}
	}
}

// TestSamples checks which requests count: a refused one is infinitely late, one that no engine has
// memory for and one of the warm-up are left out.
func TestSamples(t *testing.T) {
	tr := &trace.Trace{Requests: []trace.Request{{At: 0}, {At: 10, Output: 11}, {At: 20}, {At: 30}}}
	r := &replay.Result{Outcomes: []replay.Outcome{
		{First: 5, End: 5}, {First: 10 + time.Second, End: 10 + 3*time.Second},
		{Error: engine.ErrTooLong.Error()}, {Error: "the pool is saturated"},
	}}
	for of, want := range map[Quantity][]float64{FirstToken: {1, math.Inf(1)}, PerToken: {.2, math.Inf(1)}, EndToEnd: {3, math.Inf(1)}} {
		var got []float64
		for _, s := range (Target{Of: of}).samples(tr, r, 5) {
			got = append(got, s.seconds)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("samples of %v (-want +got):\n%s", of, diff)
		}
	}
}

func TestGrows(t *testing.T) {
	target := Target{Part: .9, Limit: time.Second}
	var growing, late []sample
	for i := range 90 {
		growing = append(growing, sample{time.Duration(i), float64(i) / 40})
		late = append(late, sample{time.Duration(i), 2})
	}
	if !target.grows(growing) || target.grows(late) || target.grows(nil) {
		t.Errorf("grows() = %t of a growing queue, %t of a constant one, %t of none", target.grows(growing), target.grows(late), target.grows(nil))
	}
}

// question returns a search for chats at a rate over all engines.
func question(t *testing.T, rate float64, machine, target string) Question {
	t.Helper()
	w, err := trace.Named("chat")
	if err != nil {
		t.Fatal(err)
	}
	p, err := replay.PolicyByName(replay.Default)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := engine.MachineByName(machine)
	q := Question{
		Source: sweep.WorkloadSource(w, 0, trace.GenerateOptions{Length: 6 * time.Minute}), Rate: rate,
		Unit: replay.Engines(1), Seeds: []uint64{1, 2}, Warmup: .2, Most: 64, Workers: 2,
		Base: replay.Case{Policy: p, Engine: engine.Config{Model: m.Model, Blocks: m.KVTokens / trace.DefaultBlockSize, AdmitWhole: true}},
	}
	for s := range strings.SplitSeq(target, ",") {
		one, err := ParseTarget(s)
		if err != nil {
			t.Fatal(err)
		}
		q.Targets = append(q.Targets, one)
	}
	return q
}

func find(t *testing.T, q Question) *Answer {
	t.Helper()
	a, err := Find(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Answer) meets(engines int) (tried, meets bool) {
	for _, s := range a.Sizes {
		if s.Engines == engines {
			return true, s.Meets
		}
	}
	return false, false
}

// TestFind checks that the answer's neighbors were tried and that the answer follows the load, the
// engines and the target.
func TestFind(t *testing.T) {
	a := find(t, question(t, 2, "70b", "p90=2s"))
	if a.Engines < 2 || a.Safe < a.Engines {
		t.Fatalf("Find() = %d engines, %d with the whole range", a.Engines, a.Safe)
	}
	for off, want := range map[int]bool{-1: false, 0: true, 1: true} {
		if tried, meets := a.meets(a.Engines + off); !tried || meets != want {
			t.Errorf("%d engines: tried %t, meets %t, want %t", a.Engines+off, tried, meets, want)
		}
	}
	for name, q := range map[string]Question{
		"twice the load": question(t, 4, "70b", "p90=2s"), "an earlier target": question(t, 2, "70b", "p90=800ms"),
		"a second target": question(t, 2, "70b", "p90=2s,per-token-p90=22ms"),
	} {
		if more := find(t, q); more.Engines <= a.Engines {
			t.Errorf("%s: %d engines, want more than %d", name, more.Engines, a.Engines)
		}
	}
	if fewer := find(t, question(t, 2, "8b", "p90=2s")); fewer.Engines >= a.Engines {
		t.Errorf("faster engines: %d engines, want fewer than %d", fewer.Engines, a.Engines)
	}
	q := question(t, 2, "70b", "p90=2s")
	q.Workers = 1
	if diff := cmp.Diff(a.Sizes, find(t, q).Sizes, cmp.AllowUnexported(Size{})); diff != "" {
		t.Errorf("results with two workers and one (-two +one):\n%s", diff)
	}
}

// TestConfirm: a size counts only if the next one meets the targets too.
func TestConfirm(t *testing.T) {
	for want, meets := range map[int][]bool{5: {false, false, true, false, true, true}, 3: {false, false, true, true, false, false}, 0: {false, false, true, false, false, false}} {
		s := &search{Question: &Question{Most: len(meets)}, sizes: map[int]*Size{}}
		for i, ok := range meets {
			s.sizes[i+1] = &Size{Engines: i + 1, Meets: ok}
		}
		if got, err := s.confirm(3); err != nil || got != want {
			t.Errorf("confirm(3) of %v = %d, %v, want %d", meets, got, err, want)
		}
	}
}

// TestUnit: the unit is multiplied as a whole.
func TestUnit(t *testing.T) {
	q := question(t, 2, "70b", "p90=2s")
	var err error
	if q.Unit, err = replay.ParseFleet("1+1x0.5"); err != nil {
		t.Fatal(err)
	}
	if a := find(t, q); a.Engines == 0 || a.Engines%2 != 0 {
		t.Errorf("Find() = %d engines, want a multiple of 2", a.Engines)
	}
}

// TestUnmet: the answer gives the reason if no number of engines meets the target.
func TestUnmet(t *testing.T) {
	for name, c := range map[string]struct {
		target, note string
		most         int
	}{
		"prefill alone": {"p90=20ms", "without any wait", 64},
		"too few tried": {"p90=2s", "--most-engines", 1},
	} {
		q := question(t, 2, "70b", c.target)
		q.Most = c.most
		a := find(t, q)
		if a.Engines != 0 || !strings.Contains(strings.Join(a.Notes, "\n"), c.note) {
			t.Errorf("%s: %d engines, notes %q, want none and %q", name, a.Engines, a.Notes, c.note)
		}
		var b bytes.Buffer
		if err := a.Write(&b); err != nil || !strings.Contains(b.String(), "No number of engines meets the targets.") {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

func TestShort(t *testing.T) {
	q := question(t, .1, "70b", "p99=2s")
	if _, err := Find(t.Context(), q); !errors.Is(err, ErrShort) || !strings.Contains(err.Error(), "at least 100 requests") {
		t.Errorf("Find() = %v, want ErrShort with the number of requests", err)
	}
	q = question(t, .5, "70b", "p99=8s")
	if a := find(t, q); !strings.Contains(strings.Join(a.Notes, "\n"), "slowest requests") {
		t.Errorf("notes %q, want one on the few requests beyond p99", a.Notes)
	}
}

// TestRefusedIsNull: JSON has no infinity.
func TestRefusedIsNull(t *testing.T) {
	out, err := json.Marshal(Value{Value: Seconds(math.Inf(1)), Low: 1})
	if err != nil || !strings.Contains(string(out), `"value_s":null,"low_s":1`) {
		t.Errorf("Marshal() = %s, %v", out, err)
	}
}
