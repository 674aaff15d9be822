package fit

import (
	"fmt"
	"math"
	"testing"
)

// TestAnswersOfManyModels: a hundred models with very different answer lengths have separate
// estimates, including limits that were only used with other models.
func TestAnswersOfManyModels(t *testing.T) {
	const models = 100
	length := func(m, class int) int { return 20 + 40*m + 10*class }
	name := func(m int) string { return fmt.Sprint("model-", m) }
	a := new(Answers)
	for range 40 {
		for m := range models {
			for class := range 8 {
				a.Observe(name(m), 1<<(class+12), length(m, class))
			}
		}
	}
	off, unseen := 0, 0
	for m := range models {
		for class := range 8 {
			want := float64(length(m, class))
			if got := a.Expect(name(m), 1<<(class+12)); math.Abs(got-want) > .15*want+40 {
				off++
			}
		}
		if got, want := a.Expect(name(m), 0), float64(length(m, 4)); math.Abs(got-want) > .15*want+300 { // the mean of all has a part in it
			unseen++
		}
	}
	if off > 8*models/20 || unseen > models/20 { // some share a cell
		t.Errorf("%d of %d classes and %d of %d models are taken for others", off, 8*models, unseen, models)
	}
}
