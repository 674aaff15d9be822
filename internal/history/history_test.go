package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker/outcomes"
)

// replica is a source whose counters tests set.
type replica struct {
	models  map[string]outcomes.ModelTotals
	waiting map[string]int
}

func (r *replica) source() Source {
	return Source{
		Models: func() map[string]outcomes.ModelTotals {
			out := map[string]outcomes.ModelTotals{}
			for name, t := range r.models {
				out[name] = t
			}
			return out
		},
		Waiting: func() map[string]int { return r.waiting },
	}
}

// add counts requests of a model, each with its first token in the bucket given.
func (r *replica) add(model string, requests, errors uint64, bucket int) {
	t := r.models[model]
	t.Requests, t.Errors = t.Requests+requests, t.Errors+errors
	t.PromptTokens, t.CachedTokens = t.PromptTokens+100*requests, t.CachedTokens+25*requests
	t.First[bucket] += requests - errors
	r.models[model] = t
}

// values returns a column with NaN for null.
func values(column []*float64) (out []float64) {
	for _, v := range column {
		if v == nil {
			out = append(out, math.NaN())
		} else {
			out = append(out, *v)
		}
	}
	return out
}

func show(t *testing.T, r *Recorder, model string) Series {
	t.Helper()
	s, ok := r.Show(model)
	if !ok {
		t.Fatalf("no series of %q", model)
	}
	return s
}

// want compares a column with what it prints.
func want(t *testing.T, name string, column []*float64, text string) {
	t.Helper()
	if got := fmt.Sprintf("%.3g", values(column)); got != text {
		t.Errorf("%s: got %s, want %s", name, got, text)
	}
}

// TestSeries: each interval shows what its counters gained, by model and for all.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &replica{models: map[string]outcomes.ModelTotals{}}
		from.add("a", 1000, 0, 3) // before the recorder
		r := New(from.source())
		start := r.taken
		from.add("a", 20, 5, 10)
		from.add("b", 10, 0, 20)
		r.sample(start.Add(Interval))
		from.waiting = map[string]int{"b": 7}
		r.sample(start.Add(2 * Interval))
		from.add("b", 40, 0, 20)
		from.waiting = nil
		r.sample(start.Add(3 * Interval))

		all := show(t, r, All)
		want(t, "requests", all.Requests, "[3 0 4]")
		want(t, "errors", all.Errors, "[0.5 0 0]")
		want(t, "waiting", all.Waiting, "[0 7 0]")
		want(t, "cached", all.Cached, "[0.25 NaN 0.25]")
		want(t, "first token", all.FirstMedian, "[0.0891 NaN 0.891]")
		want(t, "slow first token", all.FirstSlow, "[0.891 NaN 0.891]")
		want(t, "requests of a", show(t, r, "a").Requests, "[2 0 0]")
		want(t, "requests of b", show(t, r, "b").Requests, "[1 0 4]")
		if got := fmt.Sprint(all.Models); got != "[a b]" {
			t.Errorf("models: got %s, want [a b]", got)
		}
		if _, ok := r.Show("nobody's"); ok {
			t.Error("a model without requests has a series")
		}
	})
}

// TestBeforeTheFirstSample: columns are empty, not null.
func TestBeforeTheFirstSample(t *testing.T) {
	from := &replica{models: map[string]outcomes.ModelTotals{}}
	b, err := json.Marshal(show(t, New(from.source()), All))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("null")) {
		t.Errorf("got %s, want no null", b)
	}
}

// TestPause: a process that was stopped has intervals without a value, not intervals without requests.
func TestPause(t *testing.T) {
	from := &replica{models: map[string]outcomes.ModelTotals{}}
	r := New(from.source())
	start := r.taken
	r.sample(start.Add(Interval))
	from.add("a", 10, 0, 1)
	r.sample(start.Add(4 * Interval))
	want(t, "requests", show(t, r, All).Requests, "[0 NaN NaN 1]")
	want(t, "requests of a", show(t, r, "a").Requests, "[0 NaN NaN 1]")
}

// TestHour: after an hour the oldest interval is dropped, and a model that is gone with it.
func TestHour(t *testing.T) {
	from := &replica{models: map[string]outcomes.ModelTotals{}}
	r := New(from.source())
	start := r.taken
	from.add("gone", 10, 0, 1)
	r.sample(start)
	delete(from.models, "gone")
	for i := range slots {
		from.add("a", 10, 0, 1)
		r.sample(start.Add(time.Duration(i+1) * Interval))
		if n := len(show(t, r, All).Requests); n > slots {
			t.Fatalf("%d intervals, want at most %d", n, slots)
		}
	}
	r.sample(start.Add(time.Duration(slots+1) * Interval))
	if got := fmt.Sprint(show(t, r, All).Models); got != "[a]" {
		t.Errorf("models: got %s, want [a]", got)
	}
}

// TestModelRestarted: counters that begin again are no negative traffic.
func TestModelRestarted(t *testing.T) {
	from := &replica{models: map[string]outcomes.ModelTotals{}}
	r := New(from.source())
	start := r.taken
	from.add("a", 100, 0, 1)
	r.sample(start)
	delete(from.models, "a")
	from.add("a", 30, 0, 1)
	r.sample(start.Add(Interval))
	want(t, "requests", show(t, r, "a").Requests, "[10 3]")
}

// TestManyModels: memory is bounded, and no request is lost from the sums.
func TestManyModels(t *testing.T) {
	from := &replica{models: map[string]outcomes.ModelTotals{}, waiting: map[string]int{}}
	r := New(from.source())
	start := r.taken
	const models = 500
	for i := range models {
		from.add(fmt.Sprint("model-", i), 10, 0, 1)
		from.waiting[fmt.Sprint("model-", i)] = 1
	}
	r.sample(start)
	if n := len(r.ring); n > maxModels+1 {
		t.Errorf("%d series, want at most %d", n, maxModels+1)
	}
	want(t, "requests", show(t, r, All).Requests, fmt.Sprintf("[%d]", models))
	sum := 0.
	for _, name := range show(t, r, All).Models {
		sum += values(show(t, r, name).Requests)[0]
	}
	if sum != models {
		t.Errorf("the models have %g requests/s together, want %d", sum, models)
	}
	want(t, "waiting", show(t, r, All).Waiting, fmt.Sprintf("[%d]", models))
}
