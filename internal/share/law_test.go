package share

import (
	"testing"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfPayloads: the work for an event batch payload is proportional to its length, with many
// empty deltas, a few large ones, or none.
func TestWorkOfPayloads(t *testing.T) {
	chain := func(blocks int) string { return string(appendPart(nil, chainDelta(blocks))) }
	for name, part := range map[string]string{
		"empty deltas":   string(appendPart(nil, &block.Delta{})),
		"deltas of one":  chain(1),
		"deltas of many": chain(1000),
		"zeros":          "\x00",
		"ends":           "\xff",
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, string(appendPayloadHead(nil, payloadVersion, 1)), part, "")
			return func() { _, _, _ = readPayload(b) } // accepted or rejected
		})
	}
}
