package poolbus

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the messages that published releases send for several pools.
func TestWireFixtures(t *testing.T) {
	testkit.WireFixtures(t,
		testkit.WireMessage{Name: "announcement", Encoded: appendAnnouncement(nil, []string{"ns/llama", "ns/qwen"}), Decode: func(b []byte) (any, error) {
			_, announcement, err := splitMessage(b)
			if err != nil {
				return nil, err
			}
			return readAnnouncement(announcement)
		}},
		testkit.WireMessage{Name: "message", Encoded: appendMessage(nil, "ns/llama", []byte{1, 2, 3}), Decode: func(b []byte) (any, error) {
			pool, frame, err := splitMessage(b)
			return []any{pool, frame}, err
		}},
	)
}
