package split

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// The normal form of a text does not depend on the number of consecutive marks; for few marks, it
// is the standard one.
func TestLongRunsOfMarks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("aAeé한가ㅎ\u1112\u1161\u11ab\u0300\u0301\u0323\u0327\u0345\u212b\u1e9b\ufb01\u0958\u2adc\u0f71\u0f72\u0f81\u034f\u0061\u3099か\u09c7\u09be\U0001d15e\U0001f600 ")
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		for range 20_000 {
			var b strings.Builder
			for range rng.IntN(9) {
				b.WriteRune(alphabet[rng.IntN(len(alphabet))])
			}
			text := []byte(b.String())
			if got, want := long(form, text), form.Bytes(text); !bytes.Equal(got, want) {
				t.Fatalf("form %d of %+q: %+q, want %+q", form, text, got, want)
			}
		}
	}
	for text, want := range map[string]string{
		"a" + strings.Repeat("\u0300", 50):                                    "à" + strings.Repeat("\u0300", 49),
		"e" + strings.Repeat("\u0323\u0301", 40) + "x":                        "ẹ" + strings.Repeat("\u0323", 39) + strings.Repeat("\u0301", 40) + "x",
		strings.Repeat("\u0301", 100_000) + strings.Repeat("\u0323", 100_000): strings.Repeat("\u0323", 100_000) + strings.Repeat("\u0301", 100_000),
	} {
		if got := string(Normal(norm.NFC, []byte(text))); got != want {
			t.Errorf("%d bytes: %d, want %d", len(text), len(got), len(want))
		}
	}
}

// TestLongTextWithMarks checks that splitting a text around long runs of marks does not change the
// result, and that text without them costs no more.
func TestLongTextWithMarks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	alphabet := []rune("aAeé한가ㅎ\u1112\u1161\u11ab\u0300\u0301\u0323\u0345\u212b\ufb01\u0958\u034fか\u3099\u09c7\u09be\U0001d15e ")
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		for range 20 {
			var b strings.Builder
			for range 3 * pieceBytes {
				b.WriteRune(alphabet[rng.IntN(len(alphabet))])
				if rng.IntN(2000) == 0 {
					b.WriteString(strings.Repeat("\u0301\u0323", 20+rng.IntN(3000)))
				}
			}
			text := []byte(b.String())
			if !bytes.Equal(normal(form, text), long(form, text)) {
				t.Fatalf("form %d: %d bytes in pieces are not what they are as a whole", form, len(text))
			}
		}
	}
	text := append(bytes.Repeat([]byte("words "), 200_000), "a"+strings.Repeat("\u0300", 31)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	normal(norm.NFC, text)
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(6*len(text)); took > most {
		t.Errorf("%d bytes took %d, more than %d", len(text), took, most)
	}
}
