package plugins

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
)

// A prompt's memory has a cost only at endpoints where other requests would wait for memory.
func TestPriceOfMemory(t *testing.T) {
	const blocks, size = 50_000, 16 // 800,000 tokens
	engine := func(g endpoint.Gauges, requests int64) one {
		g.BlockSize, g.Blocks = size, blocks
		return one{gauges: &g, load: endpoint.Load{Requests: requests, Tokens: 20_000 * requests, Context: 20_000 * requests, Rate: 2}}
	}
	f := newFleet(
		engine(endpoint.Gauges{Values: gauge.Values{Running: 35, KVUse: .97}}, 35),
		engine(endpoint.Gauges{Values: gauge.Values{Running: 35, KVUse: .97}, At: t0.Add(-time.Minute)}, 35), // outdated
		engine(endpoint.Gauges{Values: gauge.Values{Running: 100, KVUse: .5}}, 100),
		one{load: endpoint.Load{Requests: 35, Rate: 2}}, // no gauges
	)
	price := func(tokens int) []float64 {
		with := f.scores(t, ask(tokens), "predicted-ttft-scorer", `{"copyThreshold": 0, "alike": 0}`)
		for k, without := range f.scores(t, ask(tokens), "predicted-ttft-scorer", `{"copyThreshold": 0, "alike": 0, "memoryWeight": 0}`) {
			with[k] = without - with[k]
		}
		return with
	}
	long, short := price(60_000), price(600)
	if long[0] <= .1 {
		t.Errorf("60,000 tokens on an engine without room cost others %.3f s", long[0])
	}
	for k := 1; k < len(long); k++ {
		if long[k] > 1e-6 {
			t.Errorf("60,000 tokens on engine %d, where no request waits for memory, cost others %.6f s", k, long[k])
		}
	}
	if short[0] <= 0 || short[0] > long[0]/100 {
		t.Errorf("600 tokens cost %.5f s, 60,000 tokens %.3f s: the price grows with memory and with the time it is held", short[0], long[0])
	}
}
