package sim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// messageRequest is the body of a request of Anthropic's Messages API, as far as the engine reads it.
type messageRequest struct {
	Model     string          `json:"model"`
	System    vocab.Content   `json:"system"`
	Messages  []vocab.Message `json:"messages"`
	MaxTokens *int            `json:"max_tokens"`
	Stop      []string        `json:"stop_sequences"`
	Stream    bool            `json:"stream"`
	CacheSalt string          `json:"cache_salt"`
	KV        json.RawMessage `json:"kv_transfer_params"`
}

// chatBody returns the body of the chat that the engine computes for the request.
func (q *messageRequest) chatBody() []byte {
	list := q.Messages
	if q.System != "" {
		list = append([]vocab.Message{{Role: "system", Content: q.System}}, list...)
	}
	chat := map[string]any{"model": q.Model, "messages": list, "stop": q.Stop, "cache_salt": q.CacheSalt}
	if q.MaxTokens != nil {
		chat["max_tokens"] = *q.MaxTokens
	}
	if q.KV != nil {
		chat["kv_transfer_params"] = q.KV
	}
	body, _ := json.Marshal(chat) // it was JSON
	return body
}

// chatAnswer is the part of a chat's answer that a message has.
type chatAnswer struct {
	ID, Model string
	Choices   []struct {
		Message struct{ Content string }
		Reason  string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	KV json.RawMessage `json:"kv_transfer_params"`
}

// usage returns the usage in Anthropic's form, in which cached tokens are no input tokens.
func (a *chatAnswer) usage() map[string]any {
	cached := 0
	if a.Usage.Details != nil {
		cached = a.Usage.Details.Cached
	}
	return map[string]any{
		"input_tokens": a.Usage.Prompt - cached, "output_tokens": a.Usage.Completion, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
	}
}

func (a *chatAnswer) stopReason() string {
	if a.Choices[0].Reason == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

// message returns the message with the given parts.
func (a *chatAnswer) message(content []any, stop any) map[string]any {
	return map[string]any{
		"id": "msg_" + a.ID, "type": "message", "role": "assistant", "model": a.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.usage(),
	}
}

// messages answers a request of Anthropic's Messages API, which the engine computes as a chat.
func (e *Engine) messages(w *responder, r *http.Request) {
	body, refused := w.body(r)
	if refused != nil {
		w.fail(refused)
		return
	}
	var q messageRequest
	if err := json.Unmarshal(body, &q); err != nil {
		w.fail(asAPIError(err))
		return
	}
	chat := q.chatBody()
	sub := r.Clone(r.Context())
	sub.Body, sub.ContentLength = io.NopCloser(bytes.NewReader(chat)), int64(len(chat))
	rec := &recorded{header: http.Header{}}
	inner := &responder{ResponseWriter: rec, st: w.st, most: w.most}
	e.chat(inner, sub)
	var a chatAnswer
	if inner.status != http.StatusOK || json.Unmarshal(rec.body.Bytes(), &a) != nil || len(a.Choices) == 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(max(inner.status, http.StatusContinue))
		_, _ = w.Write(rec.body.Bytes()) // the client may be gone
		return
	}
	text := a.Choices[0].Message.Content
	if !q.Stream {
		m := a.message([]any{map[string]string{"type": "text", "text": text}}, a.stopReason())
		if a.KV != nil {
			m["kv_transfer_params"] = a.KV
		}
		w.send(http.StatusOK, m)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(kind string, more map[string]any) {
		more["type"] = kind
		data, _ := json.Marshal(more) // strings and numbers
		_, _ = w.Write([]byte("event: " + kind + "\ndata: " + string(data) + "\n\n"))
		_ = http.NewResponseController(w).Flush()
	}
	event("message_start", map[string]any{"message": a.message([]any{}, nil)})
	event("content_block_start", map[string]any{"index": 0, "content_block": map[string]string{"type": "text", "text": ""}})
	for _, part := range strings.SplitAfter(text, " ") {
		event("content_block_delta", map[string]any{"index": 0, "delta": map[string]string{"type": "text_delta", "text": part}})
	}
	event("content_block_stop", map[string]any{"index": 0})
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": a.stopReason(), "stop_sequence": nil}, "usage": a.usage()})
	event("message_stop", map[string]any{})
}

// recorded is an answer that is not sent.
type recorded struct {
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorded) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorded) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (a *recorded) Write(b []byte) (int, error) { return a.body.Write(b) }
