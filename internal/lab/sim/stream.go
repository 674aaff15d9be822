package sim

import (
	"context"
	"net/http"
)

// stream sends server-sent events as tokens appear; it returns false when
// client or engine went away.
func (c *call) stream(ctx context.Context) bool {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	c.w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(c.w)
	if c.chat {
		c.head.Object = objectChunk
	}
	if out.Flush() != nil { // headers precede the first token
		return false
	}
	sent := make([]int, len(c.seqs))
	for open := len(c.seqs); open > 0; {
		if !c.wait(ctx, sent) {
			return false
		}
		for i, s := range c.seqs {
			tokens, _, _, err := s.job.State()
			if err != nil {
				return false
			}
			if tokens > c.cutAfter {
				return false
			}
			if tokens > sent[i] {
				if sent[i] == 0 {
					c.opening(s)
				}
				c.piece(s, sent[i], tokens)
				sent[i] = tokens
			}
			if tokens == len(s.output) && sent[i] != closedSequence {
				sent[i] = closedSequence
				open--
			}
		}
		if out.Flush() != nil {
			return false
		}
	}
	c.end()
	return true
}

// closedSequence marks a sequence that has been sent to its end.
const closedSequence = 1 << 62

// wait returns when some open sequence has news, and false when the client is
// gone.
func (c *call) wait(ctx context.Context, sent []int) bool {
	if len(c.seqs) == 1 {
		select {
		case <-c.seqs[0].job.Notify:
			return true
		case <-ctx.Done():
			return false
		}
	}
	// Sequences of one request run in step: waiting for the first open one
	// delays the others by a step at most.
	for i, s := range c.seqs {
		if sent[i] == closedSequence {
			continue
		}
		select {
		case <-s.job.Notify:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// opening sends the data before the first token: the role of a chat response, or the prompt if it
// is echoed.
func (c *call) opening(s *sequence) {
	empty := ""
	switch {
	case c.chat:
		r := c.head
		r.Choices = []choice{{Index: s.index, Delta: &delta{Role: "assistant", Content: &empty}}}
		if c.p.ReturnTokenIDs {
			r.PromptTokenIDs = s.prompt.tokens
		}
		if c.p.StreamOptions.ContinuousUsageStats {
			u := c.usage()
			u.TotalTokens, u.CompletionTokens = u.PromptTokens, 0
			r.Usage = u
		}
		c.data(r)
	case c.p.Echo:
		text := string(s.prompt.text)
		c.event(choice{Index: s.index, Text: &text})
	}
}

// piece sends the tokens [from, to) of a sequence.
func (c *call) piece(s *sequence, from, to int) {
	text := s.textOf(from, to)
	ch := choice{Index: s.index}
	if c.chat {
		ch.Delta = &delta{Content: &text}
	} else {
		ch.Text = &text
	}
	if to == len(s.output) && !c.cut {
		ch.FinishReason = &s.finish
	}
	if c.p.ReturnTokenIDs {
		ch.TokenIDs = s.output[from:to]
		if from == 0 && !c.chat {
			ch.PromptTokenIDs = s.prompt.tokens
		}
	}
	c.event(ch)
}

// event sends one chunk.
func (c *call) event(ch choice) {
	r := c.head
	r.Choices = []choice{ch}
	if c.p.StreamOptions.ContinuousUsageStats {
		r.Usage = c.usage()
	}
	c.data(r)
}

func (c *call) data(r reply) {
	body, err := encode(r)
	if err != nil {
		return
	}
	event := append(append([]byte("data: "), body...), "\n\n"...)
	_, _ = c.w.Write(event) // Flush reports the error
	if c.twice {
		_, _ = c.w.Write(event)
	}
}

// end sends the usage and the checksum, if requested, and the last event.
func (c *call) end() {
	if c.p.StreamOptions.IncludeUsage {
		r := c.head
		r.Choices, r.Usage = []choice{}, c.usage()
		c.data(r)
	}
	if c.w.verify {
		_, _ = c.w.Write([]byte(StreamSumPrefix + sumText(c.w.sum.Sum64()) + "\n\n"))
	}
	_, _ = c.w.Write([]byte("data: [DONE]\n\n"))
}
