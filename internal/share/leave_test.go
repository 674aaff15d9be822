package share

import (
	"fmt"
	"testing"
)

// BenchmarkLeave removes all of many sources at once, as when a whole pool is replaced, and reports
// how long it holds the lock that heartbeats need.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{20, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sources := make([]string, n)
			for i := range sources {
				sources[i] = fmt.Sprintf("10.0.%d.%d:8000/0", i/250, i%250)
			}
			for b.Loop() {
				b.StopTimer()
				m := newBenchMember(b, "a", sources)
				for i, s := range sources {
					m.fill(b, s, i, 20_480)
				}
				b.StartTimer()
				m.log.SetSources(nil)
				b.StopTimer()
				_ = m.node.Close()
				b.StartTimer()
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "held-ms")
		})
	}
}
