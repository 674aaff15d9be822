package rules

import (
	"slices"
	"testing"
)

// TestCeilings checks how much of the capacity each rule lets each band use.
func TestCeilings(t *testing.T) {
	steps, values := Holdback{Min: 0.5, Max: 0.9}, Holdback{Min: 0.5, Max: 0.9, ByValue: true}
	for name, c := range map[string]struct {
		limit      UsageLimit
		saturation float64
		priorities []int
		want       []float64
	}{
		"static":                    {StaticLimit{}, 1, []int{5, 0, -5}, []float64{1, 1, 1}},
		"one band":                  {steps, 0, []int{5}, []float64{0.9}},
		"one band by value":         {values, 0, []int{5}, []float64{0.9}},
		"steps":                     {steps, 0, []int{100, 1, 0}, []float64{0.9, 0.7, 0.5}},
		"by value":                  {values, 0, []int{100, 25, 0}, []float64{0.9, 0.6, 0.5}},
		"reflective, one band":      {new(Reflective), 1, []int{0}, []float64{1}},
		"reflective, half full":     {new(Reflective), 0.49, []int{1, 0}, []float64{1, 1}},
		"reflective, full":          {new(Reflective), 1, []int{2, 1, 0}, []float64{1, 0, 0}},
		"reflective, middle is low": {new(Reflective), 0.65, []int{2, 1, 0}, []float64{1, 1, 0}},
	} {
		got := make([]float64, len(c.priorities))
		c.limit.Ceilings(c.saturation, c.priorities, got)
		for i := range got {
			if d := got[i] - c.want[i]; !(d < 1e-9 && d > -1e-9) {
				t.Errorf("%s: ceilings %v, want %v", name, got, c.want)
				break
			}
		}
	}
}

// TestReflectiveOpensOneCallInSome checks that a lower band is open on one call in s/(1-s), however many
// calls at a low saturation or of a full pool come between.
func TestReflectiveOpensOneCallInSome(t *testing.T) {
	for _, between := range [][]float64{nil, {0.2}, {1}} {
		var r Reflective
		var open []bool
		for i := range 9 {
			out := make([]float64, 2)
			r.Ceilings(0.75, []int{1, 0}, out)
			open = append(open, out[1] == 1)
			if out[0] != 1 {
				t.Errorf("the highest band has the ceiling %v, want 1", out[0])
			}
			if i%2 == 1 {
				for _, s := range between {
					r.Ceilings(s, []int{1, 0}, out)
				}
			}
		}
		if want := []bool{false, false, true, false, false, true, false, false, true}; !slices.Equal(open, want) {
			t.Errorf("calls at %v between: open on %v, want %v", between, open, want)
		}
	}
}
