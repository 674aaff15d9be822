package split

import (
	"bytes"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lateMarks are the combining marks assigned after Unicode 9. The normaliser of the engines'
// tokenizers implements Unicode 9 and treats them as starters, across which nothing is reordered or
// composed.
var lateMarks = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x07FD, 0x07FD, 1}, {0x0898, 0x089F, 1}, {0x08CA, 0x08D3, 1}, {0x09FE, 0x09FE, 1}, {0x0C3C, 0x0C3C, 1},
		{0x0D3B, 0x0D3C, 1}, {0x0EBA, 0x0EBA, 1}, {0x1715, 0x1715, 1}, {0x1ABF, 0x1ACE, 1}, {0x1DF6, 0x1DFA, 1},
		{0xA82C, 0xA82C, 1},
	},
	R32: []unicode.Range32{
		{0x10D24, 0x10D27, 1}, {0x10EAB, 0x10EAC, 1}, {0x10EFD, 0x10EFF, 1}, {0x10F46, 0x10F50, 1}, {0x10F82, 0x10F85, 1},
		{0x11070, 0x11070, 1}, {0x1133B, 0x1133B, 1}, {0x1145E, 0x1145E, 1}, {0x11839, 0x1183A, 1}, {0x1193D, 0x1193E, 1},
		{0x11943, 0x11943, 1}, {0x119E0, 0x119E0, 1}, {0x11A34, 0x11A34, 1}, {0x11A47, 0x11A47, 1}, {0x11A99, 0x11A99, 1},
		{0x11D42, 0x11D42, 1}, {0x11D44, 0x11D45, 1}, {0x11D97, 0x11D97, 1}, {0x11F41, 0x11F42, 1}, {0x16FF0, 0x16FF1, 1},
		{0x1E08F, 0x1E08F, 1}, {0x1E130, 0x1E136, 1}, {0x1E2AE, 0x1E2AE, 1}, {0x1E2EC, 0x1E2EF, 1}, {0x1E4EC, 0x1E4EF, 1},
	},
}

// Normal returns text in the form, as a normaliser of Unicode 9 gives it.
func Normal(form norm.Form, text []byte) []byte {
	var out []byte
	for {
		i := bytes.IndexFunc(text, func(r rune) bool { return r >= 0x07fd && unicode.Is(lateMarks, r) })
		if i < 0 {
			return append(out, normal(form, text)...)
		}
		out = append(out, normal(form, text[:i])...) // not form.Append, which looks back
		_, n := utf8.DecodeRune(text[i:])
		out = append(out, text[i:i+n]...)
		text = text[i+n:]
	}
}

// joiner is the character that package norm inserts into runs of more than 30 marks. Engines'
// tokenizers do not insert it.
const joiner = "\u034f"

func normal(form norm.Form, text []byte) []byte {
	out := form.Bytes(text)
	if !joined(out, text) {
		return out
	}
	out = make([]byte, 0, len(out))
	for len(text) > 0 {
		n := apart(form, text)
		if piece := form.Bytes(text[:n]); joined(piece, text[:n]) {
			out = append(out, long(form, text[:n])...)
		} else {
			out = append(out, piece...)
		}
		text = text[n:]
	}
	return out
}

// joined reports whether joiners were put into a text.
func joined(out, text []byte) bool {
	return bytes.Count(out, []byte(joiner)) != bytes.Count(text, []byte(joiner))
}

// pieceBytes is the preferred size of a piece of text with long runs of marks. It is small because
// processing takes many times the memory of the piece.
const pieceBytes = 4 << 10

// apart returns the length of a leading piece of text that does not combine with the rest.
func apart(form norm.Form, text []byte) int {
	for i := min(pieceBytes, len(text)); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && form.Properties(text[i:]).BoundaryBefore() {
			return i
		}
	}
	return len(text)
}

// long is the form of a text with any number of marks in a row.
func long(form norm.Form, text []byte) []byte {
	split := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		split = norm.NFKD
	}
	type char struct {
		r     rune
		class uint8
	}
	var chars []char
	for _, r := range string(text) {
		for _, d := range string(split.Bytes(utf8.AppendRune(nil, r))) {
			chars = append(chars, char{d, split.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(chars); i++ {
		k := i
		for k < len(chars) && chars[k].class > 0 {
			k++
		}
		slices.SortStableFunc(chars[i:k], func(a, b char) int { return int(a.class) - int(b.class) })
		i = k
	}
	var out []byte
	if form == norm.NFD || form == norm.NFKD {
		for _, c := range chars {
			out = utf8.AppendRune(out, c.r)
		}
		return out
	}
	// The last starter composes with a following character unless a mark of the same class precedes
	// that character.
	kept, starter, last := chars[:0], -1, uint8(0)
	for _, c := range chars {
		if starter >= 0 && (last < c.class || last == 0 && starter == len(kept)-1) {
			pair := norm.NFC.Bytes(utf8.AppendRune(utf8.AppendRune(nil, kept[starter].r), c.r))
			if one, n := utf8.DecodeRune(pair); n == len(pair) {
				kept[starter].r = one
				continue
			}
		}
		if kept = append(kept, c); c.class == 0 {
			starter, last = len(kept)-1, 0
		} else {
			last = c.class
		}
	}
	for _, c := range kept {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// ASCII reports whether s contains only ASCII.
func ASCII(s []byte) bool { return asciiPrefix(s) == len(s) }

// asciiPrefix returns the length of the leading run of ASCII.
func asciiPrefix(s []byte) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8 : i+8]
		if (b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7])&0x80 != 0 {
			break
		}
	}
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// formRunes is the number of characters in inertTable: the basic multilingual plane and the first
// supplementary one.
const formRunes = 0x20000

// IsStableNFC reports whether every character of s is stable in NFC and starts a new composition,
// so that s is in NFC. Text in scripts with combining marks may be in NFC without being stable.
func IsStableNFC(s []byte) bool {
	var table *[formRunes / 64]uint64
	for {
		s = s[asciiPrefix(s):]
		if len(s) == 0 {
			return true
		}
		if table == nil {
			table = inertTable()
		}
		for len(s) > 0 && s[0] >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s)
			if r == utf8.RuneError && n == 1 || r >= formRunes || table[r>>6]&(1<<(r&63)) == 0 {
				return false
			}
			s = s[n:]
		}
	}
}

// inertTable marks the characters that IsStableNFC accepts.
var inertTable = sync.OnceValue(func() *[formRunes / 64]uint64 {
	t := new([formRunes / 64]uint64)
	var buf, out []byte
	for r := rune(0); r < formRunes; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue
		}
		buf = utf8.AppendRune(buf[:0], r)
		p := norm.NFC.Properties(buf)
		if !p.BoundaryBefore() || p.CCC() != 0 {
			continue
		}
		if out = norm.NFC.Append(out[:0], buf...); bytes.Equal(out, buf) {
			t[r>>6] |= 1 << (r & 63)
		}
	}
	return t
})
