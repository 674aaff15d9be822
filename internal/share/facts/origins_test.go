package facts

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestOrigins compares Origins with a map of maps under random operations.
func TestOrigins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var o Origins[int]
	want := map[string]map[string]int{}
	drop := func(key, origin string) {
		if delete(want[key], origin); len(want[key]) == 0 {
			delete(want, key)
		}
	}
	for step := range 20_000 {
		key, origin := fmt.Sprint("k", rng.IntN(6)), fmt.Sprint("m", rng.IntN(12))
		switch n := rng.IntN(20); {
		case n < 10:
			o.Set(key, origin, step)
			if want[key] == nil {
				want[key] = map[string]int{}
			}
			want[key][origin] = step
		case n < 19:
			o.Delete(key, origin)
			drop(key, origin)
		default:
			var keys []string
			for key, by := range want {
				if _, ok := by[origin]; ok {
					keys = append(keys, key)
					drop(key, origin)
				}
			}
			slices.Sort(keys)
			if got := o.Drop(origin); !slices.Equal(slices.Sorted(slices.Values(got)), keys) {
				t.Fatalf("step %d: Drop(%s) = %v, want %v", step, origin, got, keys)
			}
		}
		if o.Len() != len(want) {
			t.Fatalf("step %d: %d keys, want %d", step, o.Len(), len(want))
		}
		got := map[string]int{}
		for _, s := range o.Of(key) {
			got[s.Origin] = s.Value
		}
		row := o.Of(key)
		if !maps.Equal(got, want[key]) || !slices.IsSortedFunc(row, func(a, b OriginValue[int]) int { return cmp.Compare(a.Origin, b.Origin) }) || len(row) != len(got) {
			t.Fatalf("step %d: values of %s are %v, want %v", step, key, row, want[key])
		}
	}
}

// BenchmarkLoad merges one change after another, with 29 replicas and 10,000 endpoints.
func BenchmarkLoad(b *testing.B) {
	l := &Load{o: LoadOptions{Pool: endpoint.NewPool(endpoint.PoolOptions{}), Now: time.Now}, sums: map[string]total{}}
	value := appendLoad(nil, endpoint.Load{Requests: 3, Rate: 1}, time.Now())
	say := func(i int) {
		if err := l.Merge(fmt.Sprintf("replica-%d", i%29), StateVersion, fmt.Sprintf("100.200.%d.%d:8000", 100+i/100%100, 100+i%100), value); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 290_000 {
		say(i)
	}
	i := 0
	for b.Loop() {
		say(i)
		i++
	}
}

// BenchmarkOrigins stores values of 29 replicas for 10,000 endpoints and reports the memory.
func BenchmarkOrigins(b *testing.B) {
	origins, keys := make([]string, 29), make([]string, 10_000)
	for i := range origins {
		origins[i] = fmt.Sprintf("replica-%d", i)
	}
	for i := range keys {
		keys[i] = fmt.Sprintf("100.200.%d.%d:8000", 100+i/100, 100+i%100)
	}
	held := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	f := func(name string, value []byte, merge func(*endpoint.Pool) func(string, uint64, string, []byte) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				to := merge(endpoint.NewPool(endpoint.PoolOptions{}))
				before := held()
				for _, origin := range origins {
					for _, key := range keys {
						if err := to(origin, StateVersion, key, value); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(held()-before, "MB")
				runtime.KeepAlive(to)
			}
		})
	}
	f("costs", appendCost(nil, &endpoint.Cost{PrefillSeen: 1}), func(pool *endpoint.Pool) func(string, uint64, string, []byte) error {
		return (&Costs{o: CostOptions{Pool: pool}}).Merge
	})
	f("load", appendLoad(nil, endpoint.Load{Requests: 3}, time.Now()), func(pool *endpoint.Pool) func(string, uint64, string, []byte) error {
		return (&Load{o: LoadOptions{Pool: pool, Now: time.Now}, sums: map[string]total{}}).Merge
	})
}
