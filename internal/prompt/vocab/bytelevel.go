package vocab

import (
	"fmt"
	"unicode/utf8"
)

// spmSpace is U+2581, which stands for a space in SentencePiece vocabularies.
const spmSpace = "\u2581"

// byteOfRune inverts GPT-2's printable alphabet: printable Latin-1 bytes stand
// for themselves, the other 68 bytes for U+0100 and following. -1 marks runes
// outside of the alphabet.
var byteOfRune = func() (t [324]int16) {
	for i := range t {
		t[i] = -1
	}
	next := 256
	for b := 0; b < 256; b++ {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			t[b] = int16(b)
			continue
		}
		t[next] = int16(b)
		next++
	}
	return t
}()

// byteLevel decodes a token string of the printable alphabet.
func byteLevel(s string) ([]byte, error) {
	out := make([]byte, 0, len(s))
	for i, r := range s {
		if r >= rune(len(byteOfRune)) || byteOfRune[r] < 0 {
			return nil, fmt.Errorf("%w: character %q (offset %d) of token %.40q is not in the byte alphabet", ErrFormat, r, i, s)
		}
		out = append(out, byte(byteOfRune[r]))
	}
	return out, nil
}

// spmBytes decodes a SentencePiece token string. isByte is true for the fallback token of a single
// byte.
func spmBytes(s string) (out []byte, isByte bool) {
	if len(s) == 6 && s[:3] == "<0x" && s[5] == '>' {
		hi, ok1 := hexDigit(s[3])
		lo, ok2 := hexDigit(s[4])
		if ok1 && ok2 {
			return []byte{hi<<4 | lo}, true
		}
	}
	return appendSPMSpaces(make([]byte, 0, len(s)), s), false
}

// appendSPMSpaces appends s with U+2581 turned into spaces.
func appendSPMSpaces[T string | []byte](dst []byte, s T) []byte {
	for i := 0; i < len(s); {
		if s[i] == spmSpace[0] && i+2 < len(s) && s[i+1] == spmSpace[1] && s[i+2] == spmSpace[2] {
			dst = append(dst, ' ')
			i += 3
			continue
		}
		dst = append(dst, s[i])
		i++
	}
	return dst
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// runeLen returns the length of the character that starts s, 1 for a byte
// that starts none. s is not empty.
func runeLen(s []byte) int {
	if s[0] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRune(s)
	return n
}
