package scrape

import (
	"bytes"
	"strconv"
)

// find returns the metric of a line and the rest after its name, nil if the metric is not read.
func find(line []byte) (*metric, []byte) {
	f := families[line[0]]
	if f == nil {
		return nil, nil
	}
	p := len(f.prefix)
	if len(line) <= p || string(line[:p]) != f.prefix {
		return nil, nil
	}
	names := f.next[line[p]]
	for i := range names {
		m := &names[i]
		end := p + 1 + len(m.name)
		if len(line) > end && string(line[p+1:end]) == m.name && endsName(line[end]) {
			return m, line[end:]
		}
	}
	return nil, nil
}

func endsName(c byte) bool { return c == '{' || c == ' ' || c == '\t' }

// split separates the text after a name into labels, without braces, and value.
func split(rest []byte) (labels, value []byte, ok bool) {
	rest = trimLeft(rest)
	if len(rest) > 0 && rest[0] == '{' {
		end := bytes.LastIndexByte(rest, '}') // the closing brace is the last one
		if end < 0 {
			return nil, nil, false
		}
		labels, rest = rest[1:end], rest[end+1:]
	}
	rest = trimLeft(rest)
	for i, c := range rest {
		if c == ' ' || c == '\t' || c == '\r' { // a timestamp may follow
			rest = rest[:i]
			break
		}
	}
	return labels, rest, len(rest) > 0
}

func trimLeft(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// maxNumber exceeds any value of an engine. It keeps sums and differences of a page's values
// finite.
const maxNumber = 1e18

// number parses a value in [0, maxNumber].
func number(b []byte) (float64, bool) {
	if v, ok := decimal(b); ok {
		return v, true
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil && v >= 0 && v <= maxNumber
}

// decimal parses the plain form of small numbers, the common case. Up to 15 digits and 22 decimals
// the result is the nearest float.
func decimal(b []byte) (float64, bool) {
	const most = 15
	var digits uint64
	point := -1
	n := 0
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digits = digits*10 + uint64(c-'0')
			n++
		case c == '.' && point < 0:
			point = i
		default:
			return 0, false
		}
	}
	if n == 0 || n > most {
		return 0, false
	}
	v := float64(digits)
	if point >= 0 {
		v /= powers[len(b)-1-point]
	}
	return v, true
}

var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// labelSet iterates over the labels of one line.
type labelSet struct {
	rest    []byte
	scratch []byte // for values with escapes
}

// next returns the next label, false at the end or at malformed text. value is valid until the call
// after next.
func (l *labelSet) next() (name, value []byte, ok bool) {
	for len(l.rest) > 0 && (l.rest[0] == ' ' || l.rest[0] == '\t' || l.rest[0] == ',') {
		l.rest = l.rest[1:]
	}
	eq := bytes.IndexByte(l.rest, '=')
	if eq <= 0 {
		return nil, nil, false
	}
	name = bytes.TrimRight(l.rest[:eq], " \t")
	quoted := trimLeft(l.rest[eq+1:])
	if len(quoted) == 0 || quoted[0] != '"' {
		return nil, nil, false
	}
	quoted = quoted[1:]
	end := closing(quoted)
	if end < 0 {
		return nil, nil, false
	}
	value, l.rest = quoted[:end], quoted[end+1:]
	if bytes.IndexByte(value, '\\') >= 0 {
		value = l.unescape(value)
	}
	return name, value, true
}

// closing returns the index of the closing quote, or -1.
func closing(b []byte) int {
	for at := 0; ; {
		q := bytes.IndexByte(b[at:], '"')
		if q < 0 {
			return -1
		}
		at += q
		slashes := 0
		for at-slashes > 0 && b[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		at++
	}
}

func (l *labelSet) unescape(b []byte) []byte {
	l.scratch = l.scratch[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' && i+1 < len(b) {
			i++
			c = b[i]
			if c == 'n' {
				c = '\n'
			}
		}
		l.scratch = append(l.scratch, c)
	}
	return l.scratch
}
