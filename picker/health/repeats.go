package health

import "bytes"

// repeatPeriod is the length of the longest repeated piece.
const repeatPeriod = 8

// Repeats reports whether a text is a repetition of at most eight bytes.
func Repeats(text []byte) bool {
	for period := 1; period <= min(repeatPeriod, len(text)/2); period++ {
		if bytes.Equal(text[period:], text[:len(text)-period]) {
			return true
		}
	}
	return false
}
