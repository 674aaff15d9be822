package replay

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// TestDetails: a result reports the time to first token by prompt size, and the load of each engine
// over the run.
func TestDetails(t *testing.T) {
	var lines strings.Builder
	for i := range 400 {
		input := 600
		if i%4 == 0 {
			input = 20_000
		}
		blocks := make([]string, input/512)
		for k := range blocks {
			blocks[k] = fmt.Sprint(i*100 + k)
		}
		fmt.Fprintf(&lines, `{"timestamp":%d,"input_length":%d,"output_length":20,"hash_ids":[%s]}`+"\n", i*300, input, strings.Join(blocks, ","))
	}
	got := run(t, Case{Trace: read(t, lines.String(), trace.ReadOptions{Spread: -1}), Policy: policy(t, "load_only"), Endpoints: 3, Warmup: 1})
	if len(got.Sizes) != 2 || got.Sizes[0].UpTo != 1024 || got.Sizes[0].Requests != 300 || got.Sizes[1].UpTo != 65_536 || got.Sizes[1].Requests != 99 {
		t.Fatalf("%+v", got.Sizes)
	}
	if small, large := got.Sizes[0].TTFT, got.Sizes[1].TTFT; small.P50 >= large.P50 || large.P50 < .5 {
		t.Errorf("first tokens of small prompts after %.3f s, of large ones after %.3f s", small.P50, large.P50)
	}
	if len(got.Flight) != timelineParts {
		t.Fatalf("%d moments", len(got.Flight))
	}
	last, sum := -1.0, 0.0
	for _, m := range got.Flight {
		if len(m.Engines) != 3 || m.At <= last {
			t.Fatalf("%+v after %v", m, last)
		}
		last = m.At
		for _, n := range m.Engines {
			sum += n / timelineParts
		}
	}
	// By Little's law: arrivals per second times the time of one request.
	if want := got.E2E.Mean / .3; math.Abs(sum-want) > .15*want {
		t.Errorf("%.2f in flight, %.2f expected", sum, want)
	}
}

// TestGeneratedTenants: workloads with tenants report results for each tenant.
func TestGeneratedTenants(t *testing.T) {
	got := run(t, Case{Trace: small(t, "tenants", 4, 1), Policy: policy(t, "load_only"), Endpoints: 4})
	if len(got.Tenants) < 5 || !strings.HasPrefix(got.Tenants[0].Name, "tenant-") || got.Tenants[0].Requests <= got.Tenants[4].Requests {
		t.Errorf("%+v", got.Tenants)
	}
}
