package facts

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// TestWireFixtures decodes the shared states of published releases.
func TestWireFixtures(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	load := endpoint.Load{Requests: 3, Waiting: 1, Prefill: 400, Tokens: 5000, Context: 600, Pairs: 1.5, Rate: 2.5, Busy: .25, LastFirst: now.Add(-time.Second).UnixNano(), Moving: 70}
	testkit.WireFixtures(t,
		testkit.WireMessage{Name: "load", Encoded: binary.AppendUvarint(appendLoad(nil, load, now), 9), Decode: func(b []byte) (any, error) {
			l, process, err := readLoad(b, now)
			return []any{l, process}, err
		}},
		testkit.WireMessage{Name: "cost", Encoded: appendCost(nil, &endpoint.Cost{Base: .02, PerToken: 5e-5, PerPair: 1e-9, Step: .014, PerSeq: 5e-5, PerContext: 4e-8, PrefillSeen: 12, DecodeSeen: 30}), Decode: func(b []byte) (any, error) { return readCost(b) }},
		testkit.WireMessage{Name: "queue", Encoded: appendGauges(nil, []rules.Gauge{{Flow: "tenant", Priority: -1, Requests: 2, Bytes: 300, Waiting: 2, InFlight: 5}}), Decode: func(b []byte) (any, error) { return readGauges(b) }},
		testkit.WireMessage{Name: "queue-answer", Encoded: appendAnswer(nil, rules.Answer{PeerMark: rules.PeerMark{Incarnation: 7, Mark: 8}, Marks: []rules.PeerMark{{Incarnation: 9, Mark: 10}}}), Decode: func(b []byte) (any, error) { return readAnswer(b) }},
		testkit.WireMessage{Name: "seed", Encoded: (&seed{firm: true, born: 11, value: block.Seed{1, 2, 3}}).append(nil), Decode: func(b []byte) (any, error) { return readSeed(b) }},
		testkit.WireMessage{Name: "setup", Encoded: (&setup{secret: 12, models: map[string]uint64{"llama": 13, "qwen": 14}}).append(nil), Decode: func(b []byte) (any, error) { return readSetup(b) }},
	)
}
