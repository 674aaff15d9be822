package sim

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// usage is the token usage of a response.
type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	Details          *usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// reply is the body of an answer, or one chunk of a stream.
type reply struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`

	PromptTokenIDs []uint32 `json:"prompt_token_ids,omitempty"`

	KV *kvTransfer `json:"kv_transfer_params,omitempty"`
}

// choice has text in completions, a message in chats and a delta in their
// streams.
type choice struct {
	Index          int      `json:"index"`
	Text           *string  `json:"text,omitempty"`
	Message        *message `json:"message,omitempty"`
	Delta          *delta   `json:"delta,omitempty"`
	Logprobs       *int     `json:"logprobs"`
	FinishReason   *string  `json:"finish_reason"`
	StopReason     *string  `json:"stop_reason"`
	TokenIDs       []uint32 `json:"token_ids,omitempty"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids,omitempty"`
}

type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []struct{} `json:"tool_calls"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// encode is JSON without the escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// send writes a JSON body.
func (w *responder) send(status int, v any) {
	body, err := encode(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if w.verify {
		h.Set(HeaderResponseSum, sumText(checksum(body)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone
}

// fail writes an error in the form of the OpenAI API.
func (w *responder) fail(err *apiError) {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	d := detail{Message: err.message, Type: err.kind, Code: err.status}
	if err.param != "" {
		d.Param = &err.param
	}
	w.send(err.status, map[string]detail{"error": d})
}
