package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

// params is the body of an inference request, as far as the engine reads it.
type params struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []vocab.Message `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Stop                stopList        `json:"stop"`
	N                   *int            `json:"n"`
	Seed                int64           `json:"seed"`
	Echo                bool            `json:"echo"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	CacheSalt      string      `json:"cache_salt"`
	Priority       int64       `json:"priority"`
	KV             *kvTransfer `json:"kv_transfer_params"`
	ReturnTokenIDs bool        `json:"return_token_ids"`
	XArgs          struct {
		Report string `json:"kv_cache_report_mode"`
	} `json:"vllm_xargs"`
}

// stopList is a string or a list of strings.
type stopList []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *stopList) UnmarshalJSON(raw []byte) error {
	if raw[0] == '[' || raw[0] == 'n' {
		return json.Unmarshal(raw, (*[]string)(s))
	}
	var one string
	if err := json.Unmarshal(raw, &one); err != nil {
		return err
	}
	*s = stopList{one}
	return nil
}

// apiError is a refusal in the form of the OpenAI API.
type apiError struct {
	status  int
	kind    string
	message string
	param   string
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, a ...any) *apiError {
	return &apiError{http.StatusBadRequest, errBadRequest, fmt.Sprintf(format, a...), param}
}

// prompt is one prompt of a request, ready to be computed.
type prompt struct {
	text   []byte // nil when given as token ids
	tokens []uint32
	seed   answer.Seed
}

// Limits of a single request.
const (
	maxChoices = 128
	maxPrompts = 4096
)

// parse reads the body of a completions request, or a chat's.
func (e *Engine) parse(body []byte, chat bool) (*params, []prompt, error) {
	var p params
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, nil, jsonError(err)
	}
	if !e.serves(p.Model) {
		return nil, nil, &apiError{http.StatusNotFound, errNotFound, fmt.Sprintf("The model `%s` does not exist.", p.Model), "model"}
	}
	if p.N != nil && (*p.N < 1 || *p.N > maxChoices) {
		return nil, nil, badRequest("n", "n must be at least 1 and at most %d, got %d.", maxChoices, *p.N)
	}
	if chat {
		one, err := e.chatPrompt(&p, body)
		return &p, []prompt{one}, err
	}
	prompts, err := e.textPrompts(p.Prompt)
	if err == nil && len(prompts) > maxPrompts {
		err = badRequest("prompt", "%d prompts, more than %d.", len(prompts), maxPrompts)
	}
	return &p, prompts, err
}

func jsonError(err error) error {
	if errors.Is(err, vocab.ErrChat) {
		return badRequest("messages", "%v", err)
	}
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		return badRequest(typed.Field, "Invalid type for '%s': got %s.", typed.Field, typed.Value)
	}
	return badRequest("", "The request body is not valid JSON: %v", err)
}

func (e *Engine) chatPrompt(p *params, body []byte) (prompt, error) {
	text, err := e.opt.Tokenizer.Render(nil, body)
	if err != nil {
		return prompt{}, badRequest("messages", "%v", err)
	}
	tokens := e.opt.Tokenizer.AppendTokens(make([]uint32, 0, len(text)/4), text, false)
	return prompt{text, tokens, answer.OfChat(p.Messages)}, nil
}

// textPrompts reads a completions prompt: a text, a list of texts, a list of
// token ids, or a list of such lists.
func (e *Engine) textPrompts(raw json.RawMessage) ([]prompt, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return []prompt{e.textPrompt(text)}, nil
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return []prompt{{tokens: ids, seed: answer.OfTokens(ids)}}, nil
	}
	var texts []string
	var prompts []prompt
	if json.Unmarshal(raw, &texts) == nil {
		for _, t := range texts {
			prompts = append(prompts, e.textPrompt(t))
		}
	}
	var lists [][]uint32
	if len(prompts) == 0 && json.Unmarshal(raw, &lists) == nil {
		for _, ids := range lists {
			prompts = append(prompts, prompt{tokens: ids, seed: answer.OfTokens(ids)})
		}
	}
	if len(prompts) == 0 {
		return nil, badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	return prompts, nil
}

func (e *Engine) textPrompt(text string) prompt {
	b := []byte(text)
	return prompt{b, e.opt.Tokenizer.AppendTokens(make([]uint32, 0, len(b)/4), b, true), answer.OfText(text)}
}

// limit returns the most tokens that an answer to a prompt of n tokens may
// have.
func (p *params) limit(n, modelLen int, chat bool) (int, error) {
	if n == 0 {
		return 0, badRequest("prompt", "The decoder prompt cannot be empty.")
	}
	room := modelLen - n
	if room < 1 {
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", modelLen, n)
	}
	want := p.MaxTokens
	if p.MaxCompletionTokens != nil && chat {
		want = p.MaxCompletionTokens
	}
	switch {
	case want == nil && chat:
		return room, nil
	case want == nil:
		return min(16, room), nil
	case *want < 1:
		return 0, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", *want)
	case *want > room:
		return 0, badRequest("max_tokens", "'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).", *want, modelLen, n, *want, modelLen, n)
	}
	return *want, nil
}

// serves reports whether a model name is served here; no name means the base
// model.
func (e *Engine) serves(model string) bool {
	if model == "" || model == e.opt.Model || e.lora.ID(model) != 0 {
		return true
	}
	for _, a := range e.opt.Aliases {
		if a == model {
			return true
		}
	}
	return false
}
