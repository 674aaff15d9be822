package stream

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfMessages: the work for a message of another member is proportional to its length.
func TestWorkOfMessages(t *testing.T) {
	for name, text := range map[string][2]string{
		"frames of a byte":       {"", string(appendFrame(nil, []byte("x")))},
		"frames of nothing":      {"", "\x00\x00\x00\x00"},
		"frames of 1 KiB":        {"", string(appendFrame(nil, make([]byte, 1<<10)))},
		"a hello and more":       {string(hello{Label: "test", ID: "a", Boot: 7, To: "b", ToBoot: 8}.append(nil)), "x"},
		"lengths without an end": {"GVS1", "\xff"},
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, text[0], text[1], "")
			return func() {
				_ = splitBatch(b, func([]byte) {}) // accepted or rejected
				_, _ = parseHello(b)
			}
		})
	}
}
