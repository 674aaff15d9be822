package budget

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShortName cuts names of all lengths: short ones stay, long ones differ where
// the names do, and no character is cut in two.
func TestShortName(t *testing.T) {
	for _, n := range []int{0, 1, MaxName - 1, MaxName} {
		if name := strings.Repeat("x", n); ShortName(name) != name {
			t.Errorf("%d bytes are cut", n)
		}
	}
	for _, unit := range []string{"x", "é", "日", "😀", "\xff"} {
		long := strings.Repeat(unit, 1<<20)
		a, b := ShortName(long+"a"), ShortName(long+"b")
		if len(a) > MaxName || a == b || !strings.HasPrefix(long, a[:MaxName-24]) {
			t.Errorf("%q: %q and %q", unit, a, b)
		}
		if utf8.ValidString(long) && !utf8.ValidString(a) {
			t.Errorf("%q: %q is no UTF-8", unit, a)
		}
	}
}
