package budget

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestShortName: short names are unchanged, truncated ones differ if the names do, and no character
// is split.
func TestShortName(t *testing.T) {
	for _, n := range []int{0, 1, MaxName - 1, MaxName} {
		if name := strings.Repeat("x", n); ShortName(name) != name {
			t.Errorf("name of %d bytes was truncated", n)
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

// TestShownName: harmless names are unchanged. Others get a hash and have no effect on a terminal.
func TestShownName(t *testing.T) {
	for _, name := range []string{"", "gold", "meta-llama/Llama-3.1-8B", "a b", "café 7", "日本", "通义 qwen", "модель", strings.Repeat("x", MaxName)} {
		if got := PrintableName(name); got != name {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
	for _, c := range []struct{ name, begins string }{
		{"a\nb", `a\nb#`}, {"\"a\\\n", `"a\\n#`}, {"a\x1b[2Jb", `a\x1b[2Jb#`}, {"a\xffb", `a\xffb#`}, {"a\u009b1mb", `a\u009b1mb#`},
		{"gold\u202e", `gold\u202e#`}, {"go\u200bld", `go\u200bld#`}, {"gold\u3164", `gold\u3164#`}, {"gold\ufe0f", `gold\ufe0f#`},
		{"gold ", "gold #"}, {" gold", " gold#"}, {"g\u043eld", "g\u043eld#"}, {"cafe\u0301", "cafe\u0301#"}, {"\uff47old", "\uff47old#"}, {"\U000e0001", `\U000e0001#`},
	} {
		if got := PrintableName(c.name); !strings.HasPrefix(got, c.begins) || len(got) < len(c.begins)+8 {
			t.Errorf("%q is shown as %q, want %s and a hash", c.name, got, c.begins)
		}
	}
	for _, unit := range []string{"x", "é", "\x1b", "\xff", "\u202e", "e\u0301"} {
		long := strings.Repeat(unit, 1<<20)
		a, b := PrintableName(long+"a"), PrintableName(long+"b")
		if len(a) > MaxName || a == b || !utf8.ValidString(a) || strings.ContainsFunc(a, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q a million times is shown as %q and %q", unit, a, b)
		}
	}
	name := "meta-llama/Llama-3.1-8B"
	if n := testing.AllocsPerRun(100, func() { _ = PrintableName(name) }); n != 0 {
		t.Errorf("%g allocations for a harmless name, want 0", n)
	}
}
