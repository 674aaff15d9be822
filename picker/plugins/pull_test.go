package plugins

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// TestPullSources compares the share of each source with 1/(1+waiting requests), among the endpoints
// that hold at most one block less than the fullest one.
func TestPullSources(t *testing.T) {
	at := func(held int32, waiting int) one {
		return one{held: held, gauges: &endpoint.Gauges{Values: gauge.Values{Waiting: waiting}}}
	}
	for _, tt := range []struct {
		name   string
		fleet  *fleet
		params string
		serves int32
		want   []float64 // shares by endpoint; the rest of the requests have no source
	}{
		{"ties", newFleet(at(0, 0), at(1600, 0), at(1600, 0)), "", 0, []float64{0, .5, .5}},
		{"a queue", newFleet(at(0, 0), at(1600, 1), at(1600, 0)), "", 0, []float64{0, 1. / 3, 2. / 3}},
		{"one block less", newFleet(at(0, 0), at(1584, 0), at(1600, 0)), "", 0, []float64{0, .5, .5}},
		{"two blocks less", newFleet(at(0, 0), at(1568, 0), at(1600, 0)), "", 0, []float64{0, 0, 1}},
		{"too little more", newFleet(at(1000, 0), at(1600, 0)), `{"minCachedTokenDelta":601}`, 0, []float64{0, 0}},
		{"enough more", newFleet(at(1000, 0), at(1600, 0)), `{"minCachedTokenDelta":600}`, 0, []float64{0, 1}},
		{"the source computes", newFleet(at(0, 0), at(1600, 0)), "", 1, []float64{0, 0}},
		{"nobody holds it", newFleet(at(0, 0), at(0, 0)), "", 0, []float64{0, 0}},
	} {
		pull := build(t, "p2p-source-producer", tt.params).Pull
		const tries = 4000
		got := make([]float64, len(tt.want))
		for i := range tries {
			r := ask(2000)
			r.ID = fmt.Sprint("request ", i)
			c := tt.fleet.cycle(r)
			c.Plan().Order = append(c.Plan().Order[:0], tt.serves)
			if source := pull(c); source >= 0 {
				got[source] += 1. / tries
			}
			c.Free()
		}
		for i := range got {
			if d := got[i] - tt.want[i]; d > .04 || d < -.04 {
				t.Errorf("%s: shares %.2f, want %.2f", tt.name, got, tt.want)
				break
			}
		}
	}
}

// TestPropagatePriority: engines get the objective's priority, vLLM the negative.
func TestPropagatePriority(t *testing.T) {
	fl := newFleet(one{labels: map[string]string{"llm-d.ai/engine-type": "vLLM"}}, one{labels: map[string]string{"inference.networking.k8s.io/engine-type": "vllm"}},
		one{labels: map[string]string{"llm-d.ai/engine-type": "sglang"}}, one{})
	for i, want := range []int64{-7, -7, 7, 7} {
		r := ask(10)
		r.Priority = 7
		c := fl.cycle(r)
		if got, ok := PropagatePriority(c, []string{fl.pool.Snapshot().Endpoints[i].Address}, 0); got != want || !ok {
			t.Errorf("endpoint %d: priority %d, %v, want %d", i, got, ok, want)
		}
		c.Free()
	}
	other := ask(10)
	other.Kind = request.KindOther
	c := fl.cycle(other)
	defer c.Free()
	if _, ok := PropagatePriority(c, []string{"10.0.0.0:8000"}, 0); ok {
		t.Error("a request of unknown form got a priority")
	}
}
