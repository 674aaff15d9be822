package filter

import (
	"flag"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

var benchBlocks = flag.Int("federation.blocks", 1_000_000, "blocks in the filter of BenchmarkFilter")

// BenchmarkFilter measures a filter of the given number of blocks after use: as many blocks again
// were added and evicted. It reports bytes per block in memory and as a snapshot, false positives,
// bytes of a change on the wire, and the cost of a lookup, of a prefix of 200 blocks and of a
// change.
func BenchmarkFilter(b *testing.B) {
	n := *benchBlocks
	r := newRig(b, n)
	keys := r.keys(n)
	start := time.Now()
	for len(keys) > 0 {
		k := min(len(keys), 1_000)
		r.hot.Touch(keys[:k])
		keys = keys[k:]
	}
	fill := time.Since(start)
	keys = r.keys(n)
	start = time.Now()
	r.hot.Touch(keys)
	churn := time.Since(start)
	snapshot := float64(r.sync(b, MaxPart))
	f, head := r.sink.Filter(), r.source.Head()
	missing, wrong := 0, 0
	for _, k := range keys {
		if !f.Has(k) {
			missing++
		}
	}
	absent := r.keys(1_000_000)
	for _, k := range absent {
		if f.Has(k) {
			wrong++
		}
	}
	const changes = 10_000
	r.hot.Touch(r.keys(changes))
	delta := float64(r.sync(b, MaxPart))
	start = time.Now()
	longest := time.Duration(0)
	for r.source.Rotate(2); r.source.next != nil; {
		step := time.Now()
		r.source.Rotate(2)
		longest = max(longest, time.Since(step))
	}
	rebuild := time.Since(start)
	r.sync(b, MaxPart)
	f = r.sink.Filter()
	b.ResetTimer()
	hits := 0
	for i := range b.N {
		if f.Has(absent[i%len(absent)]) {
			hits++
		}
	}
	b.StopTimer()
	start = time.Now()
	held := keys[len(keys)-200:]
	for range 10_000 {
		hits += f.Run(held)
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/10_000, "ns/run")
	b.ReportMetric(float64(f.Bytes())/float64(n), "B/block")
	b.ReportMetric(snapshot/float64(n), "wire-B/block")
	b.ReportMetric(delta/(2*changes), "wire-B/change")
	b.ReportMetric(1e6*float64(wrong)/float64(len(absent)), "wrong-ppm")
	b.ReportMetric(float64(missing), "missing")
	b.ReportMetric(float64(head.Omitted), "omitted")
	b.ReportMetric(float64(fill.Nanoseconds())/float64(n), "ns/entered")
	b.ReportMetric(float64(churn.Nanoseconds())/float64(n), "ns/replaced")
	b.ReportMetric(rebuild.Seconds(), "s/rotation")
	b.ReportMetric(longest.Seconds(), "s/step")
	b.ReportMetric(float64(r.hot.Bytes())/float64(n), "hot-B/block")
}

// TestFilterFigures checks the figures in docs/design/multicluster.md at a hundredth of the size:
// about two bytes per block, and one false positive in a thousand.
func TestFilterFigures(t *testing.T) {
	const n = 100_000
	r := newRig(t, n)
	r.hot.Touch(r.keys(n))
	keys := r.keys(n)
	r.hot.Touch(keys)
	snapshot := r.sync(t, MaxPart)
	f := r.sink.Filter()
	for what, bytes := range map[string]int{"filter": f.Bytes(), "snapshot": snapshot} {
		if per := float64(bytes) / n; per > 2.3 {
			t.Errorf("%s: %.2f bytes per block", what, per)
		}
	}
	wrong := 0
	for _, k := range r.keys(n) {
		if f.Has(k) {
			wrong++
		}
	}
	if wrong > n/500 {
		t.Errorf("%d of %d absent blocks are in the filter", wrong, n)
	}
	missing := 0
	for _, k := range keys {
		if !f.Has(k) {
			missing++
		}
	}
	if missing > n/10_000 || missing != int(r.source.Head().Omitted) && missing > 0 {
		t.Errorf("%d blocks are missing, Omitted = %d", missing, r.source.Head().Omitted)
	}
}

// TestWrongFilter: a filter that contains everything yields a run of the prompt's length, and has
// no other effect.
func TestWrongFilter(t *testing.T) {
	f := newFilter(secretOf(t, string(testSecret)).pair(testWay, 1), minBuckets)
	p := f.place(block.Key(7))
	for i := range f.words {
		f.words[i] = p.mark
	}
	keys := make([]block.Key, 300)
	for i := range keys {
		keys[i] = 7
	}
	if got := f.Run(keys); got != len(keys) {
		t.Errorf("Run() = %d", got)
	}
}
