package sim

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
)

// hollow answers without text at once: with the finish reason abort, or with no choices.
func (c *call) hollow(wrong faults.Answer) {
	c.notify()
	r, empty, reason := c.head, "", "abort"
	r.Choices = []choice{}
	if wrong == faults.AnswerAbort {
		one := choice{FinishReason: &reason}
		switch {
		case c.chat && c.p.Stream:
			one.Delta = &delta{Content: &empty}
		case c.chat:
			one.Message = &message{Role: "assistant", ToolCalls: []struct{}{}}
		default:
			one.Text = &empty
		}
		r.Choices = append(r.Choices, one)
	}
	if !c.p.Stream {
		c.w.send(http.StatusOK, r)
		return
	}
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if body, err := encode(r); err == nil {
		_, _ = c.w.Write([]byte("data: " + string(body) + "\n\ndata: [DONE]\n\n"))
	}
}

// nonsense answers at once with status 200 and a body that is no answer.
func (c *call) nonsense(wrong faults.Answer) {
	kind, body, length := "application/json", "", 0
	if c.p.Stream {
		kind = "text/event-stream; charset=utf-8"
	}
	switch failure := `{"error":{"message":"simulated fault","type":"InternalServerError","code":500}}`; {
	case wrong == faults.AnswerError && c.p.Stream:
		body = "data: " + failure + "\n\ndata: [DONE]\n\n"
	case wrong == faults.AnswerError:
		body = failure
	case wrong == faults.AnswerHTML:
		kind, body = "text/html", "<html><body>Welcome</body></html>"
	case wrong == faults.AnswerBytes:
		kind, body = "application/octet-stream", string(bytes.Repeat([]byte{0xfe, 0, 0x80, '"', 0xff}, 40))
	case wrong == faults.AnswerLength:
		body, length = `{"id":"a","object":"chat.completion","choices":[{"index":0,"message":{"content":"half`, 1000
	}
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(max(length, len(body))))
	_, _ = c.w.Write([]byte(body))
	if length > len(body) {
		_ = http.NewResponseController(c.w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// half sends the head and half of the body of a complete response, then nothing until the client
// disconnects or the fault is cleared.
func (c *call) half(ctx context.Context) {
	c.notify()
	text := "half of an answer"
	r := c.head
	if r.Choices = []choice{{Text: &text}}; c.chat {
		r.Choices = []choice{{Message: &message{Role: "assistant", Content: text}}}
	}
	body, err := encode(r)
	if err != nil {
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(body[:len(body)/2])
	_ = http.NewResponseController(c.w).Flush()
	<-ctx.Done()
	panic(http.ErrAbortHandler)
}

// repeat replaces every token's text by one character.
func (c *call) repeat() {
	for _, s := range c.seqs {
		s.text = bytes.Repeat([]byte("!"), len(s.ends))
		for i := range s.ends {
			s.ends[i] = i + 1
		}
	}
}

// halve removes the text of the second half of each sequence, and its finish reason.
func (c *call) halve() {
	c.cut = true
	for _, s := range c.seqs {
		half := s.ends[len(s.ends)/2]
		s.text = s.text[:half]
		for i := range s.ends {
			s.ends[i] = min(s.ends[i], half)
		}
	}
}

// truncated sends the first half of a response as if it were whole.
func (c *call) truncated(r reply) bool {
	for _, s := range c.seqs {
		r.Choices = append(r.Choices, c.choice(s))
	}
	body, err := encode(r)
	if err != nil {
		return false
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(body[:len(body)/2])
	return true
}
