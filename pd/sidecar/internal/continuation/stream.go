package continuation

import (
	"bytes"
	"math/bits"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Stream is one streamed answer. It is used by one goroutine.
type Stream struct {
	chat   bool
	body   kvtransfer.Object // the client's request
	ids    bool              // the client asked for token ids
	reason Reason            // the stream cannot be continued; "": it can

	id, created, model []byte // of the answer
	promptIDs          []byte // token ids of the prompt, comma-separated; only for completions
	promptTokens       int
	sum                uint64 // of the token ids of prompt and answer
	text               []byte // of the answer, as the content of a JSON string
	output             []byte // token ids of the answer, comma-separated; only for completions
	tokens             int    // of the answer
	inStep             bool   // text is the complete text of the tokens
	finished           bool   // the answer has a finish reason
}

// Reason returns why the stream cannot be continued, "" if it can.
func (s *Stream) Reason() Reason { return s.reason }

// Complete reports whether the engine has ended the answer: by a finish reason, an error or [DONE].
func (s *Stream) Complete() bool { return s.finished }

// Observe reads one complete event of the answer and returns the event for the client. The result is
// empty for an event that the engine sends only because it was asked for token ids. It may point into
// event.
func (s *Stream) Observe(event []byte) []byte {
	c, ok := parseChunk(event)
	if !ok {
		s.finished = s.finished || kvtransfer.Ends(event) || !kvtransfer.IsNull(c.o.Get("error"))
		return event
	}
	if s.reason == "" {
		s.reason = s.read(&c)
	}
	s.finished = s.finished || c.finish
	if s.reason != "" { // never needed again
		s.text, s.output, s.promptIDs = nil, nil, nil
	}
	if s.ids {
		return event
	}
	return s.hide(&c, event)
}

// read adds a chunk to the stream. It returns why the stream cannot be continued any more.
func (s *Stream) read(c *chunk) Reason {
	if s.id == nil {
		s.id, s.created, s.model = bytes.Clone(c.o.Get("id")), bytes.Clone(c.o.Get("created")), bytes.Clone(c.o.Get("model"))
	}
	if c.prompt != nil && s.promptTokens == 0 {
		n, sum, ok := sumIDs(0, c.prompt)
		if !ok || n == 0 {
			return Tokens
		}
		if s.promptTokens, s.sum = n, sum; !s.chat {
			s.promptIDs = bytes.Clone(inner(c.prompt))
		}
	}
	switch {
	case c.many:
		return Content
	case !c.hasChoice:
		return ""
	case s.chat && c.otherParts(), !c.textOnly:
		return Content
	}
	n, sum, ok := sumIDs(s.sum, c.tokens)
	if !ok || n == 0 && len(c.text) > 0 || n > 0 && s.promptTokens == 0 {
		return Tokens
	}
	if n > 0 {
		if s.sum, s.tokens = sum, s.tokens+n; !s.chat {
			if len(s.output) > 0 {
				s.output = append(s.output, ',')
			}
			s.output = append(s.output, inner(c.tokens)...)
		}
		s.inStep = n == 1 && len(c.text) > 0 && !bytes.Contains(c.text, replacement) && !bytes.Contains(c.text, escapedReplacement)
	}
	s.text = append(s.text, c.text...)
	if len(s.text)+len(s.output)+len(s.promptIDs) > maxKept {
		return Large
	}
	return ""
}

// replacement is the character for incomplete bytes of a text.
var replacement, escapedReplacement = []byte("\ufffd"), []byte(`\ufffd`)

// hide returns the event without the token ids, or nothing if the engine would not have sent it.
func (s *Stream) hide(c *chunk, event []byte) []byte {
	if s.chat && c.hasChoice && c.bare && !c.finish && c.prompt == nil && kvtransfer.IsNull(c.o.Get("usage")) {
		return nil
	}
	edits, changed := c.hidden(nil)
	if !changed {
		return event
	}
	return withData(event, c.o.With(edits...))
}

// chunk is the data of one event.
type chunk struct {
	o         kvtransfer.Object
	choice    kvtransfer.Object
	hasChoice bool
	many      bool   // several choices
	prompt    []byte // token ids of the prompt, nil if absent
	tokens    []byte // token ids, nil if absent
	text      []byte // content of a JSON string
	textOnly  bool   // the text is a string or absent
	delta     kvtransfer.Object
	hasDelta  bool
	bare      bool // a delta without fields that have a value
	finish    bool
}

var (
	choicesKey = "choices"
	deltaKey   = "delta"
)

// parseChunk returns the chunk of an event, and false if the event has none.
func parseChunk(event []byte) (c chunk, ok bool) {
	data := kvtransfer.Field(event, "data")
	var err error
	if c.o, err = kvtransfer.Parse(data); err != nil {
		return c, false
	}
	list, isList := kvtransfer.Elements(c.o.Get(choicesKey))
	if !isList {
		return c, false
	}
	c.textOnly = true
	c.prompt = array(c.o.Get("prompt_token_ids"))
	if c.many = len(list) > 1; len(list) == 0 || c.many {
		return c, true
	}
	if c.choice, err = kvtransfer.Parse(list[0]); err != nil {
		return c, false
	}
	c.hasChoice = true
	if c.prompt == nil {
		c.prompt = array(c.choice.Get("prompt_token_ids"))
	}
	c.tokens = array(c.choice.Get("token_ids"))
	c.finish = !kvtransfer.IsNull(c.choice.Get("finish_reason"))
	text := c.choice.Get("text")
	if d := c.choice.Get(deltaKey); d != nil {
		if c.delta, err = kvtransfer.Parse(d); err != nil {
			return c, false
		}
		c.hasDelta, c.bare = true, true
		for _, key := range c.delta.Keys() {
			c.bare = c.bare && !hasValue(c.delta.Get(key))
		}
		text = c.delta.Get("content")
	}
	if !kvtransfer.IsNull(text) {
		if c.textOnly = len(text) >= 2 && text[0] == '"'; c.textOnly {
			c.text = text[1 : len(text)-1]
		}
	}
	return c, true
}

// otherParts reports whether a delta has more than role and text.
func (c *chunk) otherParts() bool {
	for _, key := range c.delta.Keys() {
		if key != "role" && key != "content" && hasValue(c.delta.Get(key)) {
			return true
		}
	}
	return !c.hasDelta
}

// hasValue reports whether a value is more than null, "", [] or {}.
func hasValue(v []byte) bool { return !kvtransfer.IsNull(v) && len(v) > 2 }

// hidden appends the edits that remove token ids, and the edits to the choice.
func (c *chunk) hidden(edits []kvtransfer.Edit, choice ...kvtransfer.Edit) ([]kvtransfer.Edit, bool) {
	null := []byte("null")
	if !kvtransfer.IsNull(c.o.Get("prompt_token_ids")) {
		edits = append(edits, kvtransfer.Edit{Key: "prompt_token_ids", Value: null})
	}
	if c.hasChoice {
		for _, key := range []string{"prompt_token_ids", "token_ids"} {
			if !kvtransfer.IsNull(c.choice.Get(key)) {
				choice = append(choice, kvtransfer.Edit{Key: key, Value: null})
			}
		}
		if len(choice) > 0 {
			edits = append(edits, kvtransfer.Edit{Key: choicesKey, Value: append(append([]byte{'['}, c.choice.With(choice...)...), ']')})
		}
	}
	return edits, len(edits) > 0
}

// withData returns an event with other data, in one line.
func withData(event, data []byte) []byte {
	out := make([]byte, 0, len(data)+16)
	done := false
	for line := range bytes.Lines(event) {
		switch {
		case !kvtransfer.IsField(line, "data"):
			out = append(out, line...)
		case !done:
			done = true
			out = append(out, "data: "...)
			out = append(out, bytes.ReplaceAll(data, []byte{'\n'}, []byte{' '})...)
			out = append(out, line[len(bytes.TrimRight(line, "\r\n")):]...)
		}
	}
	return out
}

// Failed reports whether an event is an engine's report that it failed, in place of the rest of the
// answer. Errors of the request are none.
func Failed(event []byte) bool {
	data := kvtransfer.Field(event, "data")
	if !bytes.Contains(data, []byte(`"error"`)) {
		return false
	}
	o, err := kvtransfer.Parse(data)
	if err != nil {
		return false
	}
	e, err := kvtransfer.Parse(o.Get("error"))
	return err == nil && kvtransfer.Number(e.Get("code")) >= 500
}

// array returns a value that is an array, otherwise nil.
func array(v []byte) []byte {
	if v = bytes.TrimSpace(v); len(v) > 1 && v[0] == '[' {
		return v
	}
	return nil
}

// inner returns the elements of an array.
func inner(list []byte) []byte { return bytes.TrimSpace(list[1 : len(list)-1]) }

// sumIDs adds the token ids of an array to a sum. ok is false if the array has other elements.
func sumIDs(sum uint64, list []byte) (n int, to uint64, ok bool) {
	if list == nil {
		return 0, sum, true
	}
	ids := inner(list)
	if len(ids) == 0 {
		return 0, sum, true
	}
	for part := range bytes.SplitSeq(ids, []byte{','}) {
		id, err := strconv.ParseUint(string(bytes.TrimSpace(part)), 10, 32)
		if err != nil {
			return 0, 0, false
		}
		hi, lo := bits.Mul64(sum^(id+1)*0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9)
		sum = hi ^ lo
		n++
	}
	return n, sum, true
}
