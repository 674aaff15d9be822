package bench

import (
	"math"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	at := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
	if g := Fit(at, []float64{1, 3, 5, 7}); math.Abs(g.Over-6) > 1e-9 || g.Mean != 4 {
		t.Errorf("%+v", g)
	}
	if g := Fit(at[:1], []float64{1}); g.Over != 0 {
		t.Errorf("%+v", g)
	}
	if g := Fit([]time.Duration{0, 0}, []float64{1, 3}); g.Over != 0 || g.Mean != 2 {
		t.Errorf("%+v", g)
	}
}
