package answer

import "bytes"

// eventPrefix opens the data of a server-sent event.
const eventPrefix = "data:"

// eventCounter counts the data events of a server-sent event stream that
// arrives in pieces cut anywhere. The closing [DONE] does not count.
type eventCounter struct {
	off     bool // not at the start of a line
	matched int  // bytes of eventPrefix read on this line; all of them: the value is next
	events  int  // data events that began
	closed  bool // [DONE] was there
}

// write returns how many data events began in p, of which f reads the values.
func (c *eventCounter) write(p []byte, f *faultFinder) int {
	before := c.events
	for len(p) > 0 {
		if c.off {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				f.write(p)
				break
			}
			f.write(p[:i])
			f.end()
			p = p[i+1:]
			c.off, c.matched = false, 0
			continue
		}
		if c.step(p[0]) {
			c.events++
			f.begin()
			f.write(p[:1])
		}
		p = p[1:]
	}
	return c.events - before
}

// step reads one byte at the start of a line and tells whether it is the first
// of a data value that counts.
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

// maxHead bounds how much of a response is held while its first generated
// text is looked for.
const maxHead = 8 << 10

// textKeys are the JSON keys under which engines send generated text:
// completions, chat, reasoning, tool calls, Responses, Anthropic.
var textKeys = [...]string{
	"content", "text", "delta", "reasoning_content", "reasoning", "thinking", "arguments", "partial_json", "refusal",
}

// textFinder looks for the first generated text of a streamed response. The
// first events of a stream may announce a role and carry none.
type textFinder struct {
	found bool
	head  []byte
}

// write returns true once: when p completes the first non-empty text.
func (t *textFinder) write(p []byte) bool {
	if t.found {
		return false
	}
	if len(t.head) == 0 && hasText(p) {
		t.found = true
		return true
	}
	t.head = append(t.head, p[:min(len(p), maxHead-len(t.head))]...)
	t.found = len(t.head) >= maxHead || hasText(t.head)
	return t.found
}

// hasText tells whether p holds a text key with a non-empty value.
func hasText(p []byte) bool {
	for {
		i := bytes.IndexByte(p, ':')
		if i < 0 {
			return false
		}
		key, value := p[:i], bytes.TrimLeft(p[i+1:], " \t")
		if startsText(value) && endsWithKey(bytes.TrimRight(key, " \t")) {
			return true
		}
		p = p[i+1:]
	}
}

// startsText tells whether a JSON value is a string with something in it.
func startsText(value []byte) bool {
	return len(value) > 1 && value[0] == '"' && value[1] != '"'
}

// endsWithKey tells whether p ends with a quoted text key.
func endsWithKey(p []byte) bool {
	if len(p) < 2 || p[len(p)-1] != '"' {
		return false
	}
	p = p[:len(p)-1]
	open := bytes.LastIndexByte(p, '"')
	if open < 0 {
		return false
	}
	for _, k := range textKeys {
		if string(p[open+1:]) == k {
			return true
		}
	}
	return false
}
