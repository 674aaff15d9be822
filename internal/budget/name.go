package budget

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// MaxName is the maximum length in bytes of stored or displayed names.
const MaxName = 256

// ShortName returns a name unchanged, or truncated to MaxName bytes with a hash at the end. A
// truncated result shares no memory with name.
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

// PrintableName returns an untrusted name in a form that is safe for records, labels, logs and
// pages. It is truncated like ShortName, and unprintable characters and invalid UTF-8 become Go
// escapes. In that case, and if the name could be confused with another (marks, trailing spaces,
// Latin letters among similar ones), it ends in a hash. Names in a single alphabet are unchanged.
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

// Shows reports whether all characters of a name are visible and have no other effect.
func Shows(name string) bool {
	for _, r := range name {
		if !shows(r) {
			return false
		}
	}
	return utf8.ValidString(name)
}

// plain reports whether a name can be displayed unchanged.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' {
			return Shows(name) && !isAmbiguous(name)
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

// alike are alphabets with letters that look like Latin ones.
var alike = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu}

// isAmbiguous reports whether a name may look like a different one.
func isAmbiguous(name string) bool {
	latin, other := false, false
	for _, r := range name {
		switch {
		case unicode.IsMark(r), r >= 0xff01 && r <= 0xff5e, r >= 0x1d400 && r <= 0x1d7ff: // full-width and mathematical forms
			return true
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.In(r, alike...):
			other = true
		}
	}
	return latin && other || padded(name)
}
