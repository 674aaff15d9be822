package plugins

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// TestRanksArePriced: a request costs the same at an engine of four equally loaded ranks as at a
// single engine with the load of one rank.
func TestRanksArePriced(t *testing.T) {
	of := func(ranks int64) one {
		return one{
			load: endpoint.Load{
				Requests: 30 * ranks, Waiting: 6 * ranks, Prefill: 12_000 * ranks, Pairs: 12e6 * float64(ranks), Tokens: 60_000 * ranks,
				Context: 40_000 * ranks, Rate: 3 * float64(ranks), Busy: .4 * float64(ranks), LastFirst: t0.UnixNano(),
			},
			gauges: &endpoint.Gauges{
				Ranks: int(ranks), Values: gauge.Values{Waiting: int(6 * ranks), Running: int(24 * ranks), KVUse: .9}, BlockSize: 16, Blocks: int(5000 * ranks),
			},
			held: 512,
		}
	}
	f := newFleet(of(1), of(4))
	if got := f.scores(t, ask(8000), "predicted-ttft-scorer", ""); got[0] != got[1] || got[0] >= 0 {
		t.Errorf("one engine costs %v, one of four ranks %v", -got[0], -got[1])
	}
	c := f.cycle(ask(8000))
	defer c.Free()
	if diff := cmp.Diff(expected(c, 0), expected(c, 1)); diff != "" {
		t.Errorf("-one +of four:\n%s", diff)
	}
	if a, b := expectedStep(c, 0), expectedStep(c, 1); a != b {
		t.Errorf("a step of one engine takes %v s, of one of four ranks %v", a, b)
	}
}
