package continuation

import (
	"bytes"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// Marker is the field of the last chunk of text in a continued answer. Its value is an object with
// after_tokens: the number of tokens that the first engine generated.
const Marker = "grapevine_continued"

// Rest is the second answer. It is used by one goroutine.
type Rest struct {
	s        *Stream
	tokens   int
	verified bool
	finished bool
}

// Finished reports whether the answer has a finish reason.
func (r *Rest) Finished() bool { return r.finished }

// Event reads one complete event of the second answer. It returns the event for the client, which may
// be empty, or the reason why the answer is no continuation.
func (r *Rest) Event(event []byte) ([]byte, Reason) {
	if Failed(event) {
		return nil, Broken
	}
	c, ok := parseChunk(event)
	if !ok {
		if r.verified && r.finished {
			return event, ""
		}
		return nil, r.notYet(event)
	}
	if c.many || c.hasChoice && (!c.textOnly || r.s.chat && c.otherParts()) {
		return nil, Content
	}
	if !r.verified {
		if c.prompt == nil {
			return nil, Tokens
		}
		n, sum, ok := sumIDs(0, c.prompt)
		if !ok || n != r.s.promptTokens+r.s.tokens || sum != r.s.sum || !bytes.Equal(c.o.Get("model"), r.s.model) {
			return nil, Differs
		}
		r.verified = true
	}
	n, _, ok := sumIDs(0, c.tokens)
	if !ok || n == 0 && len(c.text) > 0 {
		return nil, Tokens
	}
	r.tokens += n
	r.finished = r.finished || c.finish
	return r.rewrite(&c, event), ""
}

// notYet returns the reason for an event without a chunk that comes before the finish reason. Comments
// are none.
func (r *Rest) notYet(event []byte) Reason {
	if kvtransfer.Field(event, "data") == nil {
		return ""
	}
	return Broken
}

// rewrite returns a chunk with the identity and the counts of the first answer.
func (r *Rest) rewrite(c *chunk, event []byte) []byte {
	usage := c.o.Get("usage")
	hasUsage := len(usage) > 0 && usage[0] == '{'
	if c.hasChoice && !c.finish && len(c.text) == 0 && !hasUsage && (!r.s.ids || c.tokens == nil) {
		return nil
	}
	edits := []kvtransfer.Edit{{Key: "id", Value: r.s.id}, {Key: "created", Value: r.s.created}}
	if hasUsage {
		edits = append(edits, kvtransfer.Edit{Key: "usage", Value: r.usage(usage)})
	}
	if c.finish {
		value := append(strconv.AppendInt([]byte(`{"after_tokens":`), int64(r.s.tokens), 10), '}')
		edits = append(edits, kvtransfer.Edit{Key: Marker, Value: value})
	}
	var choice []kvtransfer.Edit
	if c.hasDelta && c.delta.Get("role") != nil {
		choice = append(choice, kvtransfer.Edit{Key: deltaKey, Value: c.delta.With(kvtransfer.Edit{Key: "role"})})
	}
	if r.s.ids {
		edits = r.keepIDs(c, edits, choice)
	} else {
		edits, _ = c.hidden(edits, choice...)
	}
	return withData(event, c.o.With(edits...))
}

// keepIDs appends edits for a client that asked for token ids. It already has the ids of the prompt.
func (r *Rest) keepIDs(c *chunk, edits, choice []kvtransfer.Edit) []kvtransfer.Edit {
	ids := c.tokens
	c.tokens = nil
	edits, _ = (&chunk{o: c.o}).hidden(edits)
	if !c.hasChoice {
		return edits
	}
	if !kvtransfer.IsNull(c.choice.Get("prompt_token_ids")) {
		choice = append(choice, kvtransfer.Edit{Key: "prompt_token_ids", Value: []byte("null")})
	}
	if ids == nil && len(choice) == 0 {
		return edits
	}
	return append(edits, kvtransfer.Edit{Key: choicesKey, Value: append(append([]byte{'['}, c.choice.With(choice...)...), ']')})
}

// usage returns the usage of both answers together. The cached tokens of the first are unknown.
func (r *Rest) usage(text []byte) []byte {
	o, err := kvtransfer.Parse(text)
	if err != nil {
		return text
	}
	n := r.s.tokens + r.tokens
	return o.With(setNumber("prompt_tokens", int64(r.s.promptTokens)), setNumber("completion_tokens", int64(n)),
		setNumber("total_tokens", int64(r.s.promptTokens+n)), kvtransfer.Edit{Key: "prompt_tokens_details"})
}
