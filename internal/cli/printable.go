package cli

import (
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Printable returns a writer for text and JSON that makes the output safe to display. It escapes
// unprintable characters, except newlines and tabs, in JSON notation, both inside and outside of
// strings. A character split between two writes is joined. Safe for concurrent use.
func Printable(w io.Writer) io.Writer { return &printable{w: w} }

type printable struct {
	w io.Writer

	mu   sync.Mutex
	rest []byte // beginning of a split character
	buf  []byte
}

// Write implements io.Writer.
func (p *printable) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	whole := len(p.rest)
	for back := 1; back < utf8.UTFMax && back <= len(p.rest); back++ {
		if at := len(p.rest) - back; utf8.RuneStart(p.rest[at]) {
			if !utf8.FullRune(p.rest[at:]) {
				whole = at
			}
			break
		}
	}
	p.buf = AppendPrintable(p.buf[:0], p.rest[:whole])
	p.rest = append(p.rest[:0], p.rest[whole:]...)
	if _, err := p.w.Write(p.buf); err != nil {
		return 0, err
	}
	return len(b), nil
}

// AppendPrintable appends text or JSON to dst in Printable's form.
func AppendPrintable(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	escape := func(r rune) {
		dst = append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
	}
	for len(text) > 0 {
		n := 0
		for n < len(text) && (text[n] >= ' ' && text[n] <= '~' || text[n] == '\n') {
			n++
		}
		if dst, text = append(dst, text[:n]...), text[n:]; len(text) == 0 {
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			escape(r)
		case r == '\t', unicode.IsPrint(r):
			dst = append(dst, text[:size]...)
		case r > 0xffff: // a surrogate pair
			escape(0xd800 + (r-0x10000)>>10)
			escape(0xdc00 + (r-0x10000)&0x3ff)
		default:
			escape(r)
		}
		text = text[size:]
	}
	return dst
}
