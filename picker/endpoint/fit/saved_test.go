package fit

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSaved: the share approaches the value that most first tokens show, even if a quarter of these
// waited for another reason. It stays within its bounds for any input.
func TestSaved(t *testing.T) {
	for _, want := range []float64{.05, .5, .97} {
		s, rng := new(Saved), rand.New(rand.NewPCG(1, 2))
		if got := s.Or(.8); got != .8 {
			t.Errorf("%v before the first observation", got)
		}
		for i := range 400 {
			x := want + .02*rng.NormFloat64()
			if i%4 == 0 {
				x -= 3
			}
			s.Observe(x, .8)
		}
		if got := s.Or(.8); math.Abs(got-want) > .05 {
			t.Errorf("%v, want %v", got, want)
		}
	}
	s := new(Saved)
	for _, x := range []float64{math.NaN(), math.Inf(-1), math.Inf(1), -1e300, 1e300} {
		for range 200 {
			s.Observe(x, .8)
			if got := s.Or(.8); !(got > 0 && got <= 1) {
				t.Fatalf("%v after %v", got, x)
			}
		}
	}
}
