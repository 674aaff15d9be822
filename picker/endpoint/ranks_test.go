package endpoint

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"pgregory.net/rapid"
)

// TestOfRank checks that a rank gets the integer part of its share of the requests, and the mean
// work of the waiting ones.
func TestOfRank(t *testing.T) {
	l := Load{
		Requests: 23, Waiting: 9, Prefill: 9000, Pairs: 900, Tokens: 80_000, Context: 40_000, Moving: 70, Rate: 8, Busy: 2,
		RatesAt: 3, LastFirst: 5,
	}
	want := Load{
		Requests: 5, Waiting: 2, Prefill: 2000, Pairs: 200, Tokens: 20_000, Context: 10_000, Moving: 70, Rate: 2, Busy: .5,
		RatesAt: 3, LastFirst: 5,
	}
	if diff := cmp.Diff(want, l.PerRank(4)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	l.Waiting = 3
	if got := l.PerRank(4); got.Waiting != 0 || got.Prefill != 0 || got.Pairs != 0 {
		t.Errorf("a rank without a queue has %+v", got)
	}
	r := Reading{Sampled: true, Age: time.Second, Ranks: 4, Values: gauge.Values{Waiting: 9, Running: 14, KVUse: .5}, Capacity: 4000, Slots: 3}
	alone := Reading{Sampled: true, Age: time.Second, Ranks: 4, Values: gauge.Values{Waiting: 2, Running: 3, KVUse: .5}, Capacity: 1000, Slots: 1}
	if diff := cmp.Diff(alone, r.PerRank()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOfRankLaw checks that n equal ranks each get the load of one.
func TestOfRankLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, l, all := rapid.IntRange(0, 16).Draw(t, "ranks"), Load{}, Load{}
		for _, v := range []*int64{&l.Requests, &l.Waiting, &l.Prefill, &l.Tokens, &l.Context} {
			*v = rapid.Int64Range(1, 1<<20).Draw(t, "some")
		}
		l.Pairs, l.Rate, l.Busy = float64(l.Prefill), 3, .5
		for range max(n, 1) {
			all = all.Add(l)
		}
		if diff := cmp.Diff(l, all.PerRank(n), cmp.Comparer(func(a, b float64) bool { return max(a-b, b-a) < 1e-6 })); diff != "" {
			t.Fatalf("-one +of %d:\n%s", n, diff)
		}
	})
}
