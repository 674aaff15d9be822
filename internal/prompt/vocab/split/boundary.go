package split

import "unicode/utf8"

// Boundary reports whether there is a piece boundary at i regardless of the surrounding text: no
// match of the split pattern contains both the character before i and the one after it. 0 < i <
// len(s).
func (p *Pattern) Boundary(s []byte, i int) bool {
	if !utf8.FullRune(s[i:]) || !utf8.RuneStart(s[i]) {
		return false // inside a character, or before one that is cut off
	}
	switch p.family {
	case famNone:
		return false
	case famSpaces:
		return s[i] == ' ' && s[i-1] != ' ' && !p.reaches(s, i, true)
	}
	prev := classBefore(s[:i])
	next, _ := classAt(s[i:])
	switch {
	case prev&clL != 0:
		return next&(clL|clMark) == 0 && s[i] != '\''
	case prev == clNumber:
		return next != clNumber
	case prev == clNewline:
		return next&clWhite == 0 && s[i] != '/'
	default:
		return next == clSpace && prev&clWhite == 0
	}
}

// classBefore returns the class of the last character of s.
func classBefore(s []byte) class {
	if c := s[len(s)-1]; c < utf8.RuneSelf {
		return classTable[c]
	}
	r, n := utf8.DecodeLastRune(s)
	if r == utf8.RuneError && n <= 1 {
		return clOther
	}
	return classOf(r)
}
