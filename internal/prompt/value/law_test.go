package value

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// allowed is the most that reading a document of n bytes may allocate.
func allowed(n int) int { return 256<<10 + 12*n }

// TestMemoryOfDocuments reads documents that would become many times their
// size: whether they are read or refused, memory stays within the law.
func TestMemoryOfDocuments(t *testing.T) {
	const size = 2 << 20
	for name, unit := range map[string]string{
		"empty objects": `{},`, "empty lists": `[],`, "numbers": `1,`, "empty strings": `"",`, "pairs": `{"":1},`, "keys": `{"a":1,"b":2,"c":3},`,
		"nested": `[[[[]]]],`, "escapes": `"\n",`, "messages": `{"role":"user","content":""},`, "floats": `1.5,`, "big": `123456789012345678901,`,
	} {
		doc := []byte("[" + strings.Repeat(unit, size/len(unit)) + "0]")
		for _, pack := range []bool{false, true} {
			var err error
			n := allocated(func() {
				d := Decoder{PackIDs: pack}
				_, err = d.Decode(doc)
			})
			if n > allowed(len(doc)) {
				t.Errorf("%s, pack %v: %d bytes for a document of %d, error %v", name, pack, n, len(doc), err)
			}
			if err != nil && !errors.Is(err, ErrBounds) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// One object with many keys, and ordinary text; neither exceeds the limit.
	var keys strings.Builder
	for i := range 60_000 {
		keys.WriteString(`"` + strings.Repeat("k", 1+i%7) + string(rune('a'+i%26)) + Int(int64(i)).Text() + `":"` + strings.Repeat("v", 40) + `",`)
	}
	for name, doc := range map[string]string{
		"many keys": "{" + keys.String() + `"z":0}`,
		"a chat":    "[" + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("word ", 12)+`"},`, 20_000) + "0]",
	} {
		var err error
		n := allocated(func() { _, err = new(Decoder).Decode([]byte(doc)) })
		if err != nil || n > allowed(len(doc))+len(doc) { // the copy of doc is the test's
			t.Errorf("%s: %d bytes for a document of %d, error %v", name, n, len(doc), err)
		}
	}
}

// TestWorkOfDocuments: no document takes more than in proportion to its length, whether it is
// built, looked through or split.
func TestWorkOfDocuments(t *testing.T) {
	for name, doc := range testkit.HardJSON {
		testkit.Linear(t, name, func(n int) func() {
			b := doc(n)
			return func() { // read or refused
				d := Decoder{PackIDs: true}
				_, _ = d.Decode(b)
				_, _ = d.Object(b, func(string) bool { return false })
				_, _, _ = Split(b, "messages")
			}
		})
	}
}
