package outcomes

import (
	"fmt"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// TestSaturation: by model, from fresh gauges only, for a limited number of models.
func TestSaturation(t *testing.T) {
	now := time.Unix(1000, 0)
	pool, _, _ := tallyRig(t, []string{"a"}, 8000, 8001, 8002)
	eps := pool.Snapshot().Endpoints
	if got := saturation(eps, now); len(got) != 0 {
		t.Errorf("without samples: %v", got)
	}
	eps[0].SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{Waiting: 10, KVUse: .4}})
	eps[1].SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{KVUse: .8}})
	eps[2].SetGauges(endpoint.Gauges{At: now.Add(-time.Minute), Values: gauge.Values{Waiting: 100}})
	if got := saturation(eps, now); len(got) != 1 || got["a"] != 1.5 {
		t.Errorf("saturation() = %v, want the mean of 2 and 1", got)
	}
	var many []*endpoint.Endpoint
	for i := range 2 * maxModels {
		pool, _, _ := tallyRig(t, []string{fmt.Sprint("model-", i)}, 8000)
		many = append(many, pool.Snapshot().Endpoints[0])
		many[i].SetGauges(endpoint.Gauges{At: now, Values: gauge.Values{KVUse: .8}})
	}
	if got := saturation(many, now); len(got) != maxModels {
		t.Errorf("%d series", len(got))
	}
}
