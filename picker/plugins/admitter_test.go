package plugins

import (
	"errors"
	"math"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestProbabilisticAdmitter compares shares of refused requests with min(k × s^power, 1).
func TestProbabilisticAdmitter(t *testing.T) {
	at := func(waiting int, kv float64) one {
		return one{gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: waiting, KVUse: kv}}}
	}
	for _, tt := range []struct {
		name     string
		fleet    *fleet
		params   string
		priority int
		want     float64
	}{
		{"idle", newFleet(at(0, 0), at(0, 0)), "", -1, 0},
		{"half of the default thresholds", newFleet(at(1, .1), at(0, .4)), `{"k":1}`, -1, math.Pow(.35, 5)},
		{"queue decides", newFleet(at(4, .1)), `{"queueDepthThreshold":8,"power":1,"k":1}`, -1, .5},
		{"cache decides", newFleet(at(0, .4)), `{"power":2,"k":2}`, -2, .5},
		{"no gauges count as 1", newFleet(one{}, at(0, 0)), `{"power":1,"k":1}`, -1, .5},
		{"at most 1", newFleet(at(50, 1)), "", -1, 1},
		{"priority 0 is never refused", newFleet(at(50, 1)), "", 0, 0},
	} {
		admit := build(t, "probabilistic-admitter", tt.params).Admit
		const tries = 4000
		refused := 0
		for range tries {
			r := ask(100)
			r.Priority = tt.priority
			c := tt.fleet.cycle(r)
			if err := admit(c); err != nil {
				refused++
				var e *request.Error
				if !errors.As(err, &e) || e.Reason != request.ReasonSaturated {
					t.Fatalf("%s: %v", tt.name, err)
				}
			}
			c.Free()
		}
		if got := float64(refused) / tries; math.Abs(got-tt.want) > .04 {
			t.Errorf("%s: %.3f of the requests are refused, want %.3f", tt.name, got, tt.want)
		}
	}
	for _, params := range []string{`{"queueDepthThreshold":0}`, `{"kvCacheUtilThreshold":-1}`, `{"power":0}`, `{"k":0}`} {
		if _, err := try("probabilistic-admitter", params); err == nil {
			t.Errorf("%s is accepted", params)
		}
	}
}
