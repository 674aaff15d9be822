package answer

import (
	"bytes"

	"github.com/grapevine-epp/grapevine/picker/health"
)

// finishFinder finds the finish reason of a stream. Quotes in generated text are escaped.
type finishFinder struct {
	found bool
	n     int
	edge  [2 * finishLength]byte // the end of the previous chunks, and room for a beginning
}

const (
	finishKey    = `finish_reason":`
	finishLength = len(finishKey) + len(` "`)
)

func (f *finishFinder) write(p []byte) {
	if f.found {
		return
	}
	// Look at the edge between the chunks. All of a short chunk is there.
	n := f.n + copy(f.edge[f.n:], p[:min(len(p), finishLength)])
	f.found = finishes(f.edge[:n])
	if len(p) >= finishLength {
		f.found = f.found || finishes(p)
		f.n = copy(f.edge[:], p[len(p)-finishLength:])
		return
	}
	f.n = copy(f.edge[:], f.edge[max(0, n-finishLength):n])
}

// finishes reports whether p has a finish reason that is a string. Its events have one value each.
func finishes(p []byte) bool {
	for {
		i := bytes.Index(p, []byte(finishKey))
		if i < 0 {
			return false
		}
		p = p[i+len(finishKey):]
		if bytes.HasPrefix(p, []byte(`"`)) || bytes.HasPrefix(p, []byte(` "`)) {
			return true
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
	i := bytes.IndexByte(p, '"')
	gap := p
	if i >= 0 {
		gap = p[:i]
	}
	copy(r.gap[min(r.gaps, len(r.gap)):], gap)
	r.gaps += len(gap)
	if i < 0 {
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
