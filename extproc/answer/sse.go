package answer

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// eventPrefix opens the data of a server-sent event.
const eventPrefix = "data:"

// eventCounter counts the data events of a server-sent event stream in arbitrary chunks. The final
// [DONE] does not count.
type eventCounter struct {
	off     bool // not at the start of a line
	matched int  // bytes of eventPrefix read on this line; if complete, the value follows
	events  int  // data events that began
	closed  bool // [DONE] was read

	sum   xxhash.Digest // of the current event
	last  uint64        // hash of the event before
	again int           // events that equal the one before
}

// write returns the number of data events that began in p, and passes their values to f.
func (c *eventCounter) write(p []byte, f *faultFinder) int {
	before := c.events
	for len(p) > 0 {
		if c.off {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				f.write(p)
				c.read(p)
				break
			}
			f.write(p[:i])
			f.end()
			c.read(p[:i])
			c.end()
			p = p[i+1:]
			c.off, c.matched = false, 0
			continue
		}
		if c.step(p[0]) {
			c.events++
			f.begin()
			f.write(p[:1])
			c.sum.Reset()
			c.read(p[:1])
		}
		p = p[1:]
	}
	return c.events - before
}

// eventsRead is the number of events of a stream that are compared with the one before.
const eventsRead = 64

// read reads bytes of an event.
func (c *eventCounter) read(p []byte) {
	if c.events <= eventsRead {
		_, _ = c.sum.Write(p)
	}
}

// end ends an event or another line.
func (c *eventCounter) end() {
	if c.events == 0 || c.events > eventsRead || c.matched < len(eventPrefix) {
		return
	}
	sum := c.sum.Sum64()
	if c.events > 1 && sum == c.last {
		c.again++
	}
	c.last = sum
}

// eventsTwice is the minimum number of events for a verdict.
const eventsTwice = 8

// twice reports whether each event was sent twice.
func (c *eventCounter) twice() bool {
	n := min(c.events, eventsRead)
	return n >= eventsTwice && 2*c.again >= n-1
}

// step reads one byte at the start of a line and reports whether it begins a data value that
// counts.
func (c *eventCounter) step(b byte) bool {
	switch {
	case b == '\n':
		c.matched = 0
	case c.matched < len(eventPrefix):
		if b == eventPrefix[c.matched] {
			c.matched++
			return false
		}
		c.off = true
	case b != ' ' && b != '\r':
		c.off = true
		c.closed = c.closed || b == '['
		return b != '['
	}
	return false
}

// maxHead bounds the part of a response in which the first generated text is searched.
const maxHead = 8 << 10

// textKeys are the JSON keys of generated text: completions, chat, reasoning, tool calls,
// Responses, Anthropic.
var textKeys = [...]string{
	"content", "text", "delta", "reasoning_content", "reasoning", "thinking", "arguments", "partial_json", "refusal",
}

// textFinder finds the first generated text of a streamed response: a text key, a colon and a
// non-empty string. The first events of a stream may announce a role only. It reads byte by byte
// and stores only a possible key.
type textFinder struct {
	found  bool
	seen   int  // bytes
	quoted bool // a quote was read since the last colon
	named  bool // the last string since then is a text key, followed by white space only
	value  textValue
	n      int // bytes since the last quote
	last   [maxTextKey]byte
}

// textValue is the finder's position in a value after a text key.
type textValue uint8

const (
	noValue    textValue = iota // not in a value, or it is empty
	valueNext                   // after the colon and white space
	valueBegun                  // after the quote
)

// maxTextKey is the length of the longest of textKeys.
const maxTextKey = len("reasoning_content")

// write returns true once, when p completes the first non-empty text.
func (t *textFinder) write(p []byte) bool {
	if t.found {
		return false
	}
	for _, b := range p {
		if t.step(b) {
			t.found = true
			return true
		}
	}
	t.seen += len(p)
	t.found = t.seen >= maxHead
	return t.found
}

// step reads one byte and reports whether it is the first byte of a text.
func (t *textFinder) step(b byte) bool {
	switch {
	case t.value == valueBegun:
		if t.value = noValue; b != '"' {
			return true
		}
	case t.value == valueNext && b == '"':
		t.value = valueBegun
	case b != ' ' && b != '\t':
		t.value = noValue
	}
	switch b {
	case '"':
		t.named, t.quoted = t.quoted && t.isKey(), true
		t.n = 0
	case ':':
		if t.named {
			t.value = valueNext
		}
		t.quoted, t.named, t.n = false, false, 0
	default:
		t.named = t.named && (b == ' ' || b == '\t')
		if t.n < len(t.last) {
			t.last[t.n] = b
		}
		t.n++
	}
	return false
}

// isKey reports whether the bytes since the last quote are a text key.
func (t *textFinder) isKey() bool {
	if t.n > len(t.last) {
		return false
	}
	for _, k := range textKeys {
		if string(t.last[:t.n]) == k {
			return true
		}
	}
	return false
}
