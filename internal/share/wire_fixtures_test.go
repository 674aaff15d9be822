package share

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the payloads of the index of published releases.
func TestWireFixtures(t *testing.T) {
	delta := block.Delta{
		Ops:    []block.Op{{Kind: block.OpStore, Root: true, N: 2}, {Kind: block.OpRemove, N: 1}, {Kind: block.OpClear}},
		Blocks: []block.StoredBlock{{Hash: 11, Key: 101}, {Hash: 12, Key: 102}},
		Hashes: []block.EngineHash{13},
	}
	testkit.WireFixtures(t,
		testkit.WireMessage{Name: "batch", Encoded: appendPayload(nil, 77, &delta), Decode: func(b []byte) (any, error) {
			sum, parts, err := readPayload(b)
			return []any{sum, parts}, err
		}},
		testkit.WireMessage{Name: "snapshot-head", Encoded: (&shareHead{mayBeStale: true, have: true, last: 5, sum: 6}).append(nil), Decode: func(b []byte) (any, error) { return readHead(b) }},
	)
}
