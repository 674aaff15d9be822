package gossip

import (
	"bytes"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfPackets: the work for packets on a connection, and for member metadata, is proportional
// to their length.
func TestWorkOfPackets(t *testing.T) {
	for name, text := range map[string][2]string{
		"packets of nothing":     {"", "\x00\x00"},
		"packets of a byte":      {"", "\x00\x01x"},
		"packets of 60 KiB":      {"", "\xf0\x00" + string(make([]byte, 60<<10))},
		"a packet without end":   {"\xff\xff", "x"},
		"a member and much more": {string(meta{Boot: 1, Name: "n"}.append(nil)), "x"},
	} {
		testkit.Linear(t, name, func(n int) func() {
			b := testkit.Repeated(n, text[0], text[1], "")
			return func() {
				_ = readPackets(bytes.NewReader(b), func() {}, func([]byte) bool { return true }) // reads to the end
				_, _ = parseMeta(b)
			}
		})
	}
}
