package split

import (
	"unicode"
	"unicode/utf8"
)

// class is a set of character properties used by split patterns. A character has exactly one bit
// set.
type class uint16

const (
	clOther   class = 1 << iota // controls, format characters, unassigned
	clUpper                     // Lu, Lt
	clLower                     // Ll
	clLetter                    // Lm, Lo
	clMark                      // M
	clNumber                    // N
	clSpace                     // white space but CR and LF
	clNewline                   // CR, LF
	clPunct                     // P
	clSymbol                    // S

	clL     = clUpper | clLower | clLetter
	clWhite = clSpace | clNewline
)

// flatRunes is how many characters have their class in a flat table: the
// basic multilingual plane and the first supplementary one.
const flatRunes = 0x20000

var classTable = buildClasses()

func buildClasses() *[flatRunes]class {
	t := new([flatRunes]class)
	for i := range t {
		t[i] = clOther
	}
	fill := func(tab *unicode.RangeTable, c class) {
		for _, r := range tab.R16 {
			for x := uint32(r.Lo); x <= uint32(r.Hi); x += uint32(r.Stride) {
				t[x] = c
			}
		}
		for _, r := range tab.R32 {
			for x := r.Lo; x <= r.Hi && x < flatRunes; x += r.Stride {
				t[x] = c
			}
		}
	}
	for _, d := range classOrder {
		fill(d.table, d.class)
	}
	for _, a := range assigned16 {
		for r := a.lo; r <= a.hi && r < flatRunes; r++ {
			t[r] = a.class
		}
	}
	t['\r'], t['\n'] = clNewline, clNewline
	return t
}

// classOrder lists the Unicode tables behind the classes. White space is last, because some of its
// characters have another general category.
var classOrder = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.Lu, clUpper}, {unicode.Lt, clUpper}, {unicode.Ll, clLower},
	{unicode.Lm, clLetter}, {unicode.Lo, clLetter}, {unicode.M, clMark},
	{unicode.N, clNumber}, {unicode.P, clPunct}, {unicode.S, clSymbol},
	{unicode.White_Space, clSpace},
}

// classAt returns the class and length of the character at the start of s,
// which is not empty. A byte that starts no character is clOther.
func classAt(s []byte) (class, int) {
	if c := s[0]; c < utf8.RuneSelf {
		return classTable[c], 1
	}
	r, n := utf8.DecodeRune(s)
	if r == utf8.RuneError && n <= 1 {
		return clOther, 1
	}
	return classOf(r), n
}

func classOf(r rune) class {
	if r < flatRunes {
		return classTable[r]
	}
	for _, d := range classOrder {
		if unicode.Is(d.table, r) {
			return d.class
		}
	}
	for _, a := range assigned16 {
		if r >= a.lo && r <= a.hi {
			return a.class
		}
	}
	return clOther
}

// White returns the length of the white space character at the start of s, which must not be empty,
// or 0 for other characters.
func White(s []byte) int {
	if cl, n := classAt(s); cl&clWhite != 0 {
		return n
	}
	return 0
}
