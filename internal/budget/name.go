package budget

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxName is the length in bytes from which names are cut where they are kept or
// shown.
const MaxName = 256

// ShortName returns a name as it may be kept: as it is, or cut to MaxName bytes, of
// which the last are a hash of the whole, when it is longer. The result of a cut shares
// no memory with the name.
func ShortName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	sum := hashOf(name)
	at := MaxName - len(sum)
	for at > 0 && !utf8.RuneStart(name[at]) {
		at--
	}
	return name[:at] + sum
}

func hashOf(name string) string { return "#" + strconv.FormatUint(xxhash.Sum64String(name), 16) }

// PrintableName returns a name that a stranger chose as it may be shown: in records, labels, logs
// and pages. It is cut as ShortName cuts it, and what cannot be printed, or is no UTF-8, is
// written as an escape of Go. Where that is so, and where a name could be taken for another
// one (marks, blanks at an end, letters of Latin among those that look like them), the last
// bytes are a hash of the whole. Names that are all of one alphabet stay as they are.
func PrintableName(name string) string {
	if len(name) <= MaxName && plain(name) {
		return name
	}
	sum, out := hashOf(name), make([]byte, 0, MaxName)
	for rest := name; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		piece := rest[:size]
		if r == utf8.RuneError && size == 1 || !shows(r) {
			quoted := strconv.QuoteToASCII(piece)
			piece = quoted[1 : len(quoted)-1]
		}
		if len(out)+len(piece)+len(sum) > MaxName {
			break
		}
		out, rest = append(out, piece...), rest[size:]
	}
	return string(out) + sum
}

// Shows reports whether all characters of a name show, none of them doing something else.
func Shows(name string) bool {
	for _, r := range name {
		if !shows(r) {
			return false
		}
	}
	return utf8.ValidString(name)
}

// plain reports whether a name may be shown as it is.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' {
			return Shows(name) && !doubtful(name)
		}
	}
	return !padded(name)
}

func padded(name string) bool {
	return name != "" && (name[0] == ' ' || name[len(name)-1] == ' ')
}

func shows(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// alike are alphabets with letters that look like those of Latin.
var alike = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu}

// doubtful reports whether a name may look like another one that means something else.
func doubtful(name string) bool {
	latin, other := false, false
	for _, r := range name {
		switch {
		case unicode.IsMark(r), r >= 0xff01 && r <= 0xff5e, r >= 0x1d400 && r <= 0x1d7ff: // wide forms, and those of formulas
			return true
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.In(r, alike...):
			other = true
		}
	}
	return latin && other || padded(name)
}
