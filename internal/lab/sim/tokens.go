package sim

import (
	"encoding/json"
	"net/http"
)

// tokenizeRequest is a text or a chat.
type tokenizeRequest struct {
	Model        string          `json:"model"`
	Prompt       *string         `json:"prompt"`
	Messages     json.RawMessage `json:"messages"`
	AddSpecial   *bool           `json:"add_special_tokens"`
	TokenStrings bool            `json:"return_token_strs"`
}

func (e *Engine) tokenize(w *responder, r *http.Request) {
	body, fail := w.body(r)
	if fail != nil {
		w.fail(fail)
		return
	}
	var q tokenizeRequest
	if err := json.Unmarshal(body, &q); err != nil {
		w.fail(asAPIError(jsonError(err)))
		return
	}
	var tokens []uint32
	switch {
	case q.Prompt != nil: // special tokens are on by default for texts
		tokens = e.opt.Tokenizer.AppendTokens(nil, []byte(*q.Prompt), q.AddSpecial == nil || *q.AddSpecial)
	default: // and off for chats
		text, err := e.opt.Tokenizer.Render(nil, body)
		if err != nil {
			w.fail(badRequest("messages", "%v", err))
			return
		}
		tokens = e.opt.Tokenizer.AppendTokens(nil, text, q.AddSpecial != nil && *q.AddSpecial)
	}
	var strs []string
	if q.TokenStrings {
		for i := range tokens {
			strs = append(strs, string(e.opt.Tokenizer.AppendText(nil, tokens[i:i+1])))
		}
	}
	w.send(http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		Strings     []string `json:"token_strs"`
	}{len(tokens), e.opt.Core.MaxModelLen, append([]uint32{}, tokens...), strs})
}

func (e *Engine) detokenize(w *responder, r *http.Request) {
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if w.decode(r, &q) {
		w.send(http.StatusOK, map[string]string{"prompt": string(e.opt.Tokenizer.AppendText(nil, q.Tokens))})
	}
}

// rendered is a token-in request made of a chat or a text.
type rendered struct {
	RequestID string         `json:"request_id"`
	TokenIDs  []uint32       `json:"token_ids"`
	Features  *struct{}      `json:"features"`
	Sampling  map[string]int `json:"sampling_params"`
	Model     string         `json:"model"`
	Stream    bool           `json:"stream"`
	CacheSalt *string        `json:"cache_salt"`
}

// render answers with the tokens that the request would be computed from: one
// object for a chat, a list for completions.
func (e *Engine) render(w *responder, r *http.Request, chat bool) {
	body, fail := w.body(r)
	if fail != nil {
		w.fail(fail)
		return
	}
	p, prompts, err := e.parse(body, chat)
	if err != nil {
		w.fail(asAPIError(err))
		return
	}
	list := []rendered{}
	for i := range prompts {
		limit, err := p.limit(len(prompts[i].tokens), e.opt.Core.MaxModelLen, chat)
		if err != nil {
			w.fail(asAPIError(err))
			return
		}
		one := rendered{
			RequestID: sumText(checksum(body)), TokenIDs: append([]uint32{}, prompts[i].tokens...),
			Sampling: map[string]int{"max_tokens": limit}, Model: p.Model,
		}
		if p.CacheSalt != "" {
			one.CacheSalt = &p.CacheSalt
		}
		list = append(list, one)
	}
	if chat {
		w.send(http.StatusOK, list[0])
		return
	}
	w.send(http.StatusOK, list)
}
