package split

import "unicode/utf8"

const (
	clUpperSide = clUpper | clLetter | clMark
	clLowerSide = clLower | clLetter | clMark
)

// o200k returns the end of the piece at i.
func (p *Pattern) o200k(s []byte, i int) int {
	if end := p.word(s, i); end > i {
		return end
	}
	cl, n := classAt(s[i:])
	if cl == clNumber {
		return runOfMax(s, i+n, p.digits-1, clNumber)
	}
	if end := punctuation(s, i, cl, n, ^(clL | clNumber | clWhite)); end > i {
		return newlines(s, end, p.slash)
	}
	return whitespace(s, i, true)
}

// word returns the end of the word at i, or i. It tries the alternatives of a backtracking matcher
// in order: words that end in lower case before words in upper case, each with the leading
// character before without it.
func (p *Pattern) word(s []byte, i int) int {
	cl, n := classAt(s[i:])
	lead := cl&(clL|clNumber|clNewline) == 0 && i+n < len(s)
	bare := cl&(clL|clMark) != 0
	for _, try := range [2]func([]byte, int) int{lowerWord, upperWord} {
		if lead {
			if end := try(s, i+n); end > i+n {
				return p.suffix(s, end)
			}
		}
		if bare {
			if end := try(s, i); end > i {
				return p.suffix(s, end)
			}
		}
	}
	return i
}

func (p *Pattern) suffix(s []byte, i int) int {
	if p.contraction {
		return i + contractionAt(s, i, true)
	}
	return i
}

// lowerWord matches upper-side characters, then one or more lower-side ones.
func lowerWord(s []byte, i int) int {
	both := -1 // end of the last character that is on both sides
	for i < len(s) {
		cl, n := classAt(s[i:])
		if cl == clLower {
			return runOf(s, i+n, clLowerSide)
		}
		if cl&clUpperSide == 0 {
			break
		}
		i += n
		if cl&clLowerSide != 0 {
			both = i
		}
	}
	return both
}

// upperWord matches one or more upper-side characters. Lower-side ones cannot
// follow: lowerWord would have matched.
func upperWord(s []byte, i int) int { return runOf(s, i, clUpperSide) }

// deepseek returns the end of the piece at i. Numbers are split into groups of three, ideographs
// and kana into runs. The text between them is split by its own pattern, for which each stretch is
// a complete text.
func (sp *Splitter) deepseek(i int) int {
	s := sp.s
	cl, n := classAt(s[i:])
	if cl == clNumber {
		return runOfMax(s, i+n, sp.p.digits-1, clNumber)
	}
	if isCJKKana(s[i:]) {
		for i < len(s) && isCJKKana(s[i:]) {
			i += 3
		}
		return i
	}
	if sp.chunk <= i {
		sp.chunk = i
		for sp.chunk < len(s) {
			c, w := classAt(s[sp.chunk:])
			if c == clNumber || isCJKKana(s[sp.chunk:]) {
				break
			}
			sp.chunk += w
		}
	}
	s = s[:sp.chunk]
	if end := deepseekPiece(s, i); end > i {
		return end
	}
	// A run of characters that match no alternative forms one piece.
	for i += n; i < len(s) && deepseekPiece(s, i) == i; i += n {
		_, n = utf8.DecodeRune(s[i:])
	}
	return i
}

// deepseekPiece returns the end of a match at i, or i.
func deepseekPiece(s []byte, i int) int {
	if c := s[i]; c < 0x80 && classTable[c]&(clPunct|clSymbol) != 0 {
		if end := asciiLetters(s, i+1); end > i+1 {
			return end
		}
	}
	const word = clL | clMark
	cl, n := classAt(s[i:])
	if cl&word != 0 {
		return runOf(s, i+n, word)
	}
	if cl&(clNewline|clPunct|clSymbol) == 0 {
		if end := runOf(s, i+n, word); end > i+n {
			return end
		}
	}
	if end := punctuation(s, i, cl, n, clPunct|clSymbol); end > i {
		return newlines(s, end, false)
	}
	if cl&clWhite == 0 {
		return i
	}
	return whitespace(s, i, true)
}

func asciiLetters(s []byte, i int) int {
	for i < len(s) && (s[i]|0x20) >= 'a' && (s[i]|0x20) <= 'z' {
		i++
	}
	return i
}

// isCJKKana reports whether s starts with U+4E00-U+9FA5 or U+3040-U+30FF.
func isCJKKana(s []byte) bool {
	if len(s) < 3 || s[0] < 0xe3 || s[0] > 0xe9 {
		return false
	}
	r := rune(s[0]&0xf)<<12 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f)
	return r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff
}
