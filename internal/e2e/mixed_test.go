package e2e

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// requests is the number of requests of both configurations together.
const requests = 10_000

// small and large consist of single requests of 1 KB to 64 KB, and of 64 KB to 1 MB.
var (
	small = workload.Kind{Name: "small", Turns: 1, UserRange: [2]int{170, 10_000}, Answer: 12, Completions: true}
	large = workload.Kind{Name: "large", Turns: 1, UserRange: [2]int{10_000, 170_000}, Answer: 12, Completions: true}
)

// TestMixedLoad sends requests of 1 KB to 1 MB, streamed and not. Clients abort one in twenty at a
// random moment. All other answers equal the engine's byte for byte, and no state remains.
func TestMixedLoad(t *testing.T) {
	const largeShare = .1
	n := requests / 2
	for i, kind := range []envoyconf.Kind{envoyconf.Resilient, envoyconf.Gateway} {
		t.Run(string(kind), func(t *testing.T) {
			r := open(t, rigOptions{kind: kind})
			big := int(largeShare * float64(n))
			done := make(chan workload.Totals)
			go func() { done <- r.run(mixed(large, big, 2, uint64(i))) }()
			a := r.run(mixed(small, n-big, 14, uint64(i)))
			b := <-done
			r.settle()
			r.clean()
			streams(r)
			aborted := a.Aborted + b.Aborted
			if got := int(a.Requests + b.Requests + aborted); got < n {
				t.Errorf("%d requests, want %d", got, n)
			}
			if float64(aborted) < .01*float64(n) {
				t.Errorf("only %d requests were aborted", aborted)
			}
			t.Logf("%d answered, %d aborted; p50 %v, p99 %v", a.Requests+b.Requests, aborted, a.Latency.Quantile(.5), a.Latency.Quantile(.99))
			r.close()
		})
	}
}

func mixed(kind workload.Kind, n, users int, seed uint64) workload.Options {
	return workload.Options{
		Source: workload.NewSource(kind, seed, vocab.Name, .5), Users: users, Requests: n,
		AbortShare: .05, AbortAfter: 2 * time.Millisecond, Seed: seed,
	}
}
