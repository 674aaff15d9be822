package picker

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestSampledAnswersAreBounded checks the share of responses whose body passes through the picker:
// the first of an endpoint, a sample, and one a second, also where responses teach nothing.
func TestSampledAnswersAreBounded(t *testing.T) {
	for _, perSecond := range []int{30, 500} {
		now, pool := t0, newPool(8)
		s := newScheduler(t, Options{Pool: pool, Now: func() time.Time { return now }, SampleBodies: .05})
		run := func(n int) (wanted int) {
			for range n {
				d, err := s.Choose(t.Context(), chatRequest("r", 1000))
				if err != nil {
					t.Fatal(err)
				}
				if d.WantBody {
					wanted++
				}
				d.Done(request.Outcome{Status: 200, Complete: true})
				now = now.Add(time.Second / time.Duration(perSecond))
			}
			return wanted
		}
		if first := run(20_000); first > 8*mostSamples+20_000/20+20_000*8/perSecond+200 {
			t.Errorf("%d requests/s: %d of the first 20,000 responses sampled", perSecond, first)
		}
		// One in twenty, and at most one a second and endpoint beyond that.
		n := 100 * perSecond
		if later, most := run(n), n/20+8*100+n/50; later > most {
			t.Errorf("%d requests/s: %d of %d later responses sampled, want at most %d", perSecond, later, n, most)
		}
	}
}
