package natsbus

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the heartbeats of published releases.
func TestWireFixtures(t *testing.T) {
	h := heartbeat{Seq: 5, Name: "llama-0", Version: "0.1.0", Addr: "10.1.2.3:4222", Answers: true, Zone: "z1"}
	testkit.WireFixtures(t, testkit.WireMessage{Name: "heartbeat", Encoded: h.append(nil), Decode: func(b []byte) (any, error) { return parseHeartbeat(b) }})
}
