package cli

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestPrintable writes text in pieces. Control characters are escaped, and valid JSON keeps its
// meaning.
func TestPrintable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain, café, 日本 😀\n\tx", "plain, café, 日本 😀\n\tx"},
		{"\x1b[2J\r\x7f", `\u001b[2J\u000d\u007f`},
		{"\u009b1m\u202e\u2066\u200b\u00a0", `\u009b1m\u202e\u2066\u200b\u00a0`},
		{"\U000e0001", `\udb40\udc01`},
		{"a\xffb\xe6b", `a\ufffdb\ufffdb`},
	} {
		for size := 1; size <= len(c.text); size++ {
			var out bytes.Buffer
			w := Printable(&out)
			for rest := []byte(c.text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if out.String() != c.want {
				t.Errorf("%q in pieces of %d is %s, want %s", c.text, size, out.String(), c.want)
			}
		}
	}
	text := "\x1b\u009b\u202e\U000e0001 \"quoted\" \\ é\n"
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(AppendPrintable(nil, b), &back); err != nil || back != text {
		t.Errorf("%q, %v", back, err)
	}
}
