package clusters

import "testing"

// TestQuiet checks clusters that never fill up. Almost no request may leave home, and the p90 must
// not be higher than without other clusters.
func TestQuiet(t *testing.T) {
	for _, o := range []Options{{Clusters: 2, Mean: .3, Swing: .3}, {Clusters: 4, Mean: .5, Swing: .8}} {
		o.Engines, o.Day, o.Seed = 8, 40, 1
		run := func(p Policy) *Result {
			o.Policy = p
			r, err := Run(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d clusters, load %.1f: %-10s %d requests, p50 %.3f p90 %.3f p99 %.3f, away %.4f", o.Clusters, o.Mean, p, r.Requests, r.Quantile(.5), r.Quantile(.9), r.Quantile(.99), r.Spill())
			return r
		}
		alone, price := run(Alone), run(Price)
		if price.Quantile(.9) > 1.03*alone.Quantile(.9) || price.Spill() > .01 {
			t.Errorf("%d clusters at load %.1f: p90 %.3f s and %.4f away, without import %.3f s", o.Clusters, o.Mean, price.Quantile(.9), price.Spill(), alone.Quantile(.9))
		}
	}
}
