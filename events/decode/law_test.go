package decode

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWorkOfBatches: no batch takes more than in proportion to its length.
func TestWorkOfBatches(t *testing.T) {
	for name, text := range map[string][3]string{
		"nested lists": {"\x93\xcb\x00\x00\x00\x00\x00\x00\x00\x00", "\x91", "\xc0"},
		"nested maps":  {"\x93\xcb\x00\x00\x00\x00\x00\x00\x00\x00", "\x81\xa1a", "\xc0"},
		"null events":  {"\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x00\x10\x00\x00", "\xc0", ""},
		"empty events": {"\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x00\x00\xff\xff", "\x90", ""},
		"cleared":      {"\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x00\x00\xff\xff", "\x91\xb1AllBlocksCleared", ""},
		"removed":      {"\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\xdd\x00\x00\xff\xff", "\x92\xacBlockRemoved\x91\x01", ""},
		"hashes":       {"\x92\xcb\x00\x00\x00\x00\x00\x00\x00\x00\x91\x92\xacBlockRemoved\xdd\x00\x10\x00\x00", "\x01", ""},
		"garbage":      {"", "\xc1", ""},
	} {
		testkit.Linear(t, name, func(n int) func() {
			p := testkit.Repeated(n, text[0], text[1], text[2])
			return func() {
				var b Batch
				_ = b.Decode(p) // read or refused
			}
		})
	}
}
