package gossip

import (
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/stream"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the metadata of members of published releases.
func TestWireFixtures(t *testing.T) {
	m := meta{Boot: 1 << 50, StreamPort: 7947, StreamHost: "10.1.2.3", Fingerprint: stream.Fingerprint{1, 2, 3}, Name: "llama-0", Version: "0.1.0", Zone: "z1"}
	testkit.WireFixtures(t, testkit.WireMessage{Name: "meta", Encoded: m.append(nil), Decode: func(b []byte) (any, error) { return parseMeta(b) }})
}
