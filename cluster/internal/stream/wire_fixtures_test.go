package stream

import (
	"errors"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the messages that published releases send on streams.
func TestWireFixtures(t *testing.T) {
	h := hello{Label: "grapevine", ID: "a-1", Boot: 7, To: "b-2", ToBoot: 8}
	batch := appendFrame(appendFrame(nil, []byte("one")), []byte("second"))
	testkit.WireFixtures(t,
		testkit.WireMessage{Name: "hello", Encoded: h.append(nil), Decode: func(b []byte) (any, error) {
			h, ok := parseHello(b)
			if !ok {
				return nil, errors.New("malformed")
			}
			return h, nil
		}},
		testkit.WireMessage{Name: "batch", Encoded: batch, Decode: func(b []byte) (any, error) {
			var frames []string
			err := splitBatch(b, func(f []byte) { frames = append(frames, string(f)) })
			return frames, err
		}},
	)
}
