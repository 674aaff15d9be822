package split

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzSplit checks that every pattern's pieces cover any text.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"don't you'LL ıt's I'M", "  two\n\n three\t ", "ABCdef Ghi12345678 x/y//\r\n", "e\u0301\u200d👍🏽 你好ひらカナ", "a > </b> c", "\xff\xc3(", "\u00a0\u3000x"} {
		f.Add([]byte(s))
	}
	all := []*Pattern{whole, spaces, eachSpace, patGPT2, patO200K, patTekken, deepSeek, Spaces([][]byte{[]byte("> </")})}
	for _, p := range known {
		all = append(all, p)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, s []byte) {
		for _, p := range all {
			for sp := p.Split(s); !sp.Done(); {
				a := sp.Pos()
				if b := sp.Next(); b <= a || b > len(s) {
					t.Fatalf("%s: piece [%d,%d) of %q", p.name, a, b, s)
				}
			}
		}
	})
}

// TestBoundary checks that pieces end wherever Boundary returns true, for every way to cut the
// text.
func TestBoundary(t *testing.T) {
	text := []byte("Don't 12345 stop,  you'LL\n\n see e\u0301 你好ひら x/y ABCdef > </b>\u00a0z")
	for _, p := range []*Pattern{spaces, patGPT2, patCL100K, patO200K, patTekken, deepSeek, known[Qwen2], known[Qwen35]} {
		ends := map[int]bool{}
		for sp := p.Split(text); !sp.Done(); {
			ends[sp.Next()] = true
		}
		found := 0
		for i := 1; i < len(text); i++ {
			if !p.Boundary(text, i) {
				continue
			}
			if found++; !ends[i] {
				t.Errorf("%s: no piece ends at %d of %q", p.Name(), i, text)
			}
		}
		if found == 0 {
			t.Errorf("%s: no boundary found", p.Name())
		}
	}
}
