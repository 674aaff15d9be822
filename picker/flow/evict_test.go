package flow

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestHelpless checks which permits are wanted at other replicas, and which replica holds most.
func TestHelpless(t *testing.T) {
	const now = int64(1e12)
	waiting := rules.Gauge{Priority: 5, Waiting: 3}
	for name, c := range map[string]struct {
		gauges []rules.Gauge
		since  int64 // when the peer's requests began to wait
		own    holding
		wanted int64
		most   bool
	}{
		"a peer that waits":            {[]rules.Gauge{waiting}, 0, holding{1}, 3, true},
		"one that just began":          {[]rules.Gauge{waiting}, now - helpAfter + 1, holding{1}, 0, true},
		"one that can help itself":     {[]rules.Gauge{waiting, {Priority: -1, InFlight: 1}}, 0, holding{2}, 0, true},
		"one that holds more":          {[]rules.Gauge{{Priority: -1, InFlight: 2}}, 0, holding{1}, 0, false},
		"one with more permits in all": {[]rules.Gauge{{Priority: 9, InFlight: 2}, {Priority: 8, InFlight: 2}}, 0, holding{0, 3}, 0, false},
		"one with fewer":               {[]rules.Gauge{{Priority: 9, InFlight: 2}}, 0, holding{0, 3}, 0, true},
		"one with more requests":       {[]rules.Gauge{{Priority: 9, Requests: 1}, {Priority: 8, Requests: 2}}, 0, holding{0, 0, 2}, 0, false},
		"one with fewer requests":      {[]rules.Gauge{{Priority: 9, Requests: 1}}, 0, holding{0, 0, 2}, 0, true},
		"one with more bytes":          {[]rules.Gauge{{Priority: 9, Bytes: 1}, {Priority: 8, Bytes: 2}}, 0, holding{0, 0, 0, 2}, 0, false},
		"one with fewer bytes":         {[]rules.Gauge{{Priority: 9, Bytes: 1}}, 0, holding{0, 0, 0, 2}, 0, true},
	} {
		f := &fleet{peers: map[string]*peer{"other": {gauges: c.gauges, waitsSince: c.since}}}
		if wanted, most := f.helpless(now, 5, 0, c.own); wanted != c.wanted || most != c.most {
			t.Errorf("%s: helpless() = %d, %t, want %d, %t", name, wanted, most, c.wanted, c.most)
		}
	}
}
