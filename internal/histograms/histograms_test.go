package histograms

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestBoth: a histogram has its fixed buckets and native ones, whose number is bounded whatever values come. An
// observation does not allocate.
func TestBoth(t *testing.T) {
	h := prometheus.NewHistogram(Both(prometheus.HistogramOpts{Name: "x", Buckets: []float64{.1, 1}}))
	v := 1e-9
	for range 1000 {
		v *= 1.05
		h.Observe(v)
	}
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	got := m.GetHistogram()
	buckets := 0
	for _, s := range got.GetPositiveSpan() {
		buckets += int(s.GetLength())
	}
	if len(got.GetBucket()) != 2 || got.GetSampleCount() != 1000 || buckets < 10 || buckets > mostNative {
		t.Errorf("%d fixed buckets, %d samples, %d native buckets, want 2, 1000, and 10 to %d", len(got.GetBucket()), got.GetSampleCount(), buckets, mostNative)
	}
	if n := testing.AllocsPerRun(100, func() { h.Observe(.5) }); n != 0 {
		t.Errorf("%v allocations per observation", n)
	}
}
