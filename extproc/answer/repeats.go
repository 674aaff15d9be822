package answer

import (
	"bytes"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// finishFinder finds the finish reasons of a body. Quotes in generated text are escaped.
type finishFinder struct {
	found   bool // a finish reason that is a string
	aborted bool // one that is abort
	n       int
	edge    [2 * finishLength]byte // the end of the previous chunks, and room for a beginning
}

const (
	finishKey    = `finish_reason"`
	finishAbort  = `"abort"`
	finishLength = len(finishKey) + len(` : `) + len(finishAbort)
)

// write reads the next chunk. It looks at the edge between chunks as well, unless the previous chunk
// ended with a line: key and value are on one line.
func (f *finishFinder) write(p []byte) {
	f.find(p)
	if f.n > 0 {
		f.n += copy(f.edge[f.n:], p[:min(len(p), finishLength)])
		f.find(f.edge[:f.n])
	}
	switch tail := p[max(0, len(p)-finishLength):]; {
	case tail[len(tail)-1] == '\n':
		f.n = 0
	case len(tail) == finishLength || f.n == 0:
		f.n = copy(f.edge[:], tail)
	default: // a short chunk, which is in the edge
		f.n = copy(f.edge[:], f.edge[max(0, f.n-finishLength):f.n])
	}
}

// find reads the finish reasons in p. The search begins with a letter, because quotes are frequent.
func (f *finishFinder) find(p []byte) {
	for {
		i := bytes.Index(p, []byte(finishKey))
		if i < 0 {
			return
		}
		p = p[i+len(finishKey):]
		value, ok := bytes.CutPrefix(bytes.TrimLeft(p, " "), []byte{':'})
		if value = bytes.TrimLeft(value, " "); ok && len(value) > 0 && value[0] == '"' {
			f.found = true
			f.aborted = f.aborted || bytes.HasPrefix(value, []byte(finishAbort))
		}
	}
}

// Limits of repeatFinder.
const (
	repeatHead = 8 << 10 // bytes of the body that are read
	repeatText = 192     // bytes of text that are kept
	repeatFew  = 16      // minimum bytes of text for a verdict
)

// repeatFinder reads the generated text at the beginning of a body and decides whether it repeats
// a few bytes, as the text of logits that are not numbers does. It skips from quote to quote.
type repeatFinder struct {
	text  [repeatText]byte
	n     int
	seen  int
	key   textFinder // holds the last string's beginning
	gap   [2]byte    // bytes since the last string
	gaps  int
	in    bool // in a string
	value bool // of generated text
	slash bool // after a backslash
}

func (r *repeatFinder) reset() {
	r.n, r.seen, r.gaps, r.in, r.value, r.slash, r.key.n = 0, 0, 0, false, false, false, 0
}

func (r *repeatFinder) write(p []byte) {
	if r.seen >= repeatHead {
		return
	}
	p = p[:min(len(p), repeatHead-r.seen)]
	r.seen += len(p)
	for len(p) > 0 {
		if !r.in {
			p = r.outside(p)
			continue
		}
		end := 0
		for end < len(p) && p[end] != '"' && p[end] != '\\' {
			end++
		}
		switch {
		case r.slash: // the escaped byte counts as text
			r.slash = false
			r.take(p[:1])
			p = p[1:]
		case end == len(p):
			r.take(p)
			return
		default:
			r.take(p[:end])
			r.slash = p[end] == '\\'
			r.in = r.slash
			p = p[end+1:]
		}
	}
}

// outside reads up to the next quote and decides whether a value of a text key follows.
func (r *repeatFinder) outside(p []byte) []byte {
	i := 0 // most gaps are a byte or two
	for i < len(p) && p[i] != '"' {
		i++
	}
	for k := r.gaps; k < len(r.gap) && k-r.gaps < i; k++ {
		r.gap[k] = p[k-r.gaps]
	}
	if r.gaps += i; i == len(p) {
		return nil
	}
	colon := r.gaps > 0 && r.gaps <= len(r.gap) && r.gap[0] == ':' && (r.gaps == 1 || r.gap[1] == ' ')
	r.value = colon && r.key.isKey()
	r.in, r.gaps, r.key.n = true, 0, 0
	return p[i+1:]
}

// take reads bytes of a string.
func (r *repeatFinder) take(p []byte) {
	if !r.value {
		if r.key.n < len(r.key.last) {
			copy(r.key.last[r.key.n:], p)
		}
		r.key.n += len(p)
		return
	}
	for len(p) > 0 {
		if r.n == len(r.text) { // keep the later half
			r.n = copy(r.text[:], r.text[repeatText/2:])
		}
		k := copy(r.text[r.n:], p)
		r.n, p = r.n+k, p[k:]
	}
}

// repeats reports whether the later half of the text that was read repeats a few bytes, or all of a
// short text.
func (r *repeatFinder) repeats() bool {
	text := r.text[:r.n]
	if r.n >= 2*repeatFew {
		text = r.text[r.n/2 : r.n]
	}
	return len(text) >= repeatFew && health.Repeats(text)
}
