package filter

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfParts: the work for a part is proportional to its length, for valid parts and malformed
// ones.
func TestWorkOfParts(t *testing.T) {
	r := newRig(t, 50_000)
	r.hot.Touch(r.keys(50_000))
	whole := string(r.source.AppendPart(nil, Position{}, MaxPart))
	for name, part := range map[string]string{
		"rows":                whole,
		"few rows":            string(r.source.AppendPart(nil, Position{}, MinPart)),
		"rows without an end": whole[:len(whole)/2],
		"zeros":               whole[:min(len(whole), 40)] + string(make([]byte, MinPart)),
	} {
		testkit.Linear(t, name, func(n int) func() {
			return func() {
				sink := NewSink(secretOf(t, string(testSecret)), testWay, 1<<20)
				for left := n; left > 0; left -= len(part) {
					_, _ = sink.Apply([]byte(part)) // accepted or rejected
				}
			}
		})
	}
}
