package picker_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// idlest scores candidates by the requests that are in flight there.
type idlest struct{}

func (idlest) Score(c *cycle.Cycle, scores []float64) {
	for k := range scores {
		scores[k] = -float64(c.At(k).Load.Requests)
	}
}

// inOrder picks the candidates from the best to the worst.
type inOrder struct{}

func (inOrder) Pick(_ *cycle.Cycle, totals []float64, order []int32) []int32 {
	best := 0
	for k := range totals {
		if totals[k] > totals[best] {
			best = k
		}
	}
	return append(order, int32(best))
}

// one runs the same profile for every request.
type one struct{ *cycle.Profile }

func (o one) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	plan.Order = append(plan.Order, o.Run(c).Order...)
	return nil
}

// A scheduler places requests by a profile of filters, scorers and a picker,
// and books them until they are done.
func Example() {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Addr: netip.MustParseAddrPort("10.0.0.2:8000")},
	})
	s, err := picker.New(picker.Options{
		Pool:  pool,
		Rules: &picker.Rules{Handler: one{&cycle.Profile{Name: "default", Scorers: []cycle.ProfileScorer{{Name: "idlest", Weight: 1, Scorer: idlest{}}}, Picker: inOrder{}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	place := func() *request.Decision {
		d, err := s.Choose(context.Background(), &request.Request{Kind: request.KindChat, Model: "m", Target: "m", InputTokens: 100})
		if err != nil {
			fmt.Println(err)
		}
		return d
	}
	first := place()
	second := place() // while the first one runs
	fmt.Println(first.Endpoints[0] != second.Endpoints[0])
	first.Done(request.Outcome{At: time.Now(), Status: 200, Complete: true})
	third := place() // where the first one was
	fmt.Println(third.Endpoints[0] == first.Endpoints[0])
	// Output:
	// true
	// true
}
