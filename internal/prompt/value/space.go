package value

import (
	"strings"
	"unicode/utf8"
)

// pyWhite are the characters that Python strips and splits at.
const pyWhite = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// IsSpace reports whether Python treats r as white space in strip and split.
func IsSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	}
	return strings.ContainsRune(pyWhite, r) && r != utf8.RuneError
}
