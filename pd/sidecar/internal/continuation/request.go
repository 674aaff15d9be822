package continuation

import (
	"bytes"
	"math"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// maxKept bounds the token ids and the text that are kept of one stream.
const maxKept = 4 << 20

// maxFields bounds the fields of a request, which are compared with each other.
const maxFields = 100

// defaultMaxTokens is the length of completions without max_tokens, in vLLM and in OpenAI's API.
const defaultMaxTokens = 16

// New returns the stream of a request. ok is false for requests that are not streamed. If the stream
// cannot be continued, Stream.Reason returns why.
func New(format *kvtransfer.Format, body kvtransfer.Object) (s *Stream, ok bool) {
	if string(body.Get("stream")) != "true" {
		return nil, false
	}
	s = &Stream{chat: format == kvtransfer.Chat, body: body, ids: string(body.Get("return_token_ids")) == "true"}
	switch {
	case format != kvtransfer.Chat && format != kvtransfer.Completions:
		s.reason = API
	case !s.fieldsAllow():
		s.reason = Field
	case !zero(body.Get("temperature")) && !isInteger(body.Get("seed")):
		s.reason = Sampling
	}
	return s, true
}

// fieldsAllow reports whether every field of the request is known not to prevent a continuation.
func (s *Stream) fieldsAllow() bool {
	keys := s.body.Keys()
	if len(keys) > maxFields {
		return false
	}
	for _, key := range keys {
		if s.body.Count(key) > 1 {
			return false
		}
		allows := fields[key]
		if v := s.body.Get(key); allows == nil && !kvtransfer.IsNull(v) || allows != nil && !kvtransfer.IsNull(v) && !allows(v) {
			return false
		}
	}
	if s.chat {
		list, ok := kvtransfer.Elements(s.body.Get("messages"))
		tools := s.body.Get("tools")
		return ok && len(list) > 0 && (kvtransfer.IsNull(tools) || isEmpty(tools) || !kvtransfer.IsNull(s.body.Get("tool_choice")))
	}
	prompt := bytes.TrimSpace(s.body.Get("prompt"))
	return len(prompt) > 2 && (prompt[0] == '"' || prompt[0] == '[' && prompt[1] >= '0' && prompt[1] <= '9')
}

// fields are the fields of requests that can be continued, and the values that allow it. A null value
// always does.
var fields = map[string]func(value []byte) bool{
	"model": always, "prompt": always, "messages": always, "stream": always, "stream_options": always,
	"user": always, "metadata": always, "service_tier": always, "safety_identifier": always, "prompt_cache_key": always,
	"session_id": always, "request_id": always, "cache_salt": always, "priority": always, "return_token_ids": always,

	// Sampling of one token, by its own distribution only.
	"temperature": isNumber, "top_p": always, "top_k": always, "min_p": always, "seed": isInteger, "logit_bias": always, "allowed_token_ids": always,
	"stop_token_ids": always, "ignore_eos": always, "max_tokens": isInteger, "max_completion_tokens": isInteger, "min_tokens": isInteger,
	"skip_special_tokens": isTrue, "spaces_between_special_tokens": isTrue, "add_special_tokens": always,
	"chat_template": always, "chat_template_kwargs": always, "documents": always,

	// Fields that are off.
	"n": isOne, "best_of": isOne, "frequency_penalty": zero, "presence_penalty": zero, "repetition_penalty": isOne, "length_penalty": isOne,
	"echo": isFalse, "logprobs": isFalse, "top_logprobs": zero, "use_beam_search": isFalse, "store": isFalse, "add_generation_prompt": isTrue,
	"continue_final_message": isFalse, "include_stop_str_in_output": isFalse, "watermarking": isFalse, "return_prompt_text": isFalse,
	"stop": isEmpty, "bad_words": isEmpty, "tools": always, "functions": isEmpty, "suffix": isEmpty, "parallel_tool_calls": always,
	"tool_choice":     func(v []byte) bool { return kvtransfer.Text(v) == "none" },
	"response_format": func(v []byte) bool { return string(kvtransfer.Find(v, "type")) == `"text"` },
}

func always([]byte) bool    { return true }
func isTrue(v []byte) bool  { return string(v) == "true" }
func isFalse(v []byte) bool { return string(v) == "false" }
func isEmpty(v []byte) bool {
	list, ok := kvtransfer.Elements(v)
	return ok && len(list) == 0 || string(v) == `""`
}

func isNumber(v []byte) bool { _, ok := number(v); return ok }
func zero(v []byte) bool     { n, ok := number(v); return ok && n == 0 }
func isOne(v []byte) bool    { n, ok := number(v); return ok && n == 1 }

func isInteger(v []byte) bool {
	_, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil
}

func number(v []byte) (float64, bool) {
	n, err := strconv.ParseFloat(string(v), 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// askTokens replaces the closing brace of a request. Engines take the last of equal fields.
var askTokens = []byte(`,"return_token_ids":true}`)

// AskTokens returns a request, which has at least one field, with return_token_ids. It does not copy the
// request and does not change it.
func AskTokens(body kvtransfer.Pieces) kvtransfer.Pieces {
	out := append(make(kvtransfer.Pieces, 0, len(body)+1), body...)
	for len(out) > 0 {
		last := len(out) - 1
		part := bytes.TrimRight(out[last], " \t\r\n")
		if len(part) > 0 && part[len(part)-1] == '}' {
			out[last] = part[:len(part)-1]
			return append(out, askTokens)
		}
		if len(part) > 0 {
			return body
		}
		out = out[:last]
	}
	return body
}

// Resume returns the request for the rest of the answer, or the reason why there is none.
func (s *Stream) Resume() (*Rest, kvtransfer.Pieces, Reason) {
	switch {
	case s.reason != "":
		return nil, nil, s.reason
	case s.finished:
		return nil, nil, Finished
	case s.promptTokens == 0 || s.tokens == 0:
		return nil, nil, Tokens
	}
	edits := []kvtransfer.Edit{{Key: "return_token_ids", Value: []byte("true")}, {Key: "request_id"}}
	for _, key := range []string{"max_tokens", "max_completion_tokens"} {
		v := s.body.Get(key)
		if v == nil && key == "max_tokens" && !s.chat {
			v = strconv.AppendInt(nil, defaultMaxTokens, 10)
		}
		if kvtransfer.IsNull(v) {
			continue
		}
		left := kvtransfer.Number(v) - s.tokens
		if left < 1 {
			return nil, nil, Finished
		}
		edits = append(edits, setNumber(key, int64(left)))
	}
	if v := s.body.Get("min_tokens"); !kvtransfer.IsNull(v) {
		edits = append(edits, setNumber("min_tokens", int64(max(0, kvtransfer.Number(v)-s.tokens))))
	}
	if v := s.body.Get("seed"); !kvtransfer.IsNull(v) && !zero(s.body.Get("temperature")) {
		seed, _ := strconv.ParseInt(string(v), 10, 64) // fieldsAllow checked it
		edits = append(edits, setNumber("seed", seed+int64(s.tokens)))
	}
	rest := &Rest{s: s}
	return rest, s.body.Pieces(append(edits, s.prompt()...)...), ""
}

func setNumber(key string, n int64) kvtransfer.Edit {
	return kvtransfer.Edit{Key: key, Value: strconv.AppendInt(nil, n, 10)}
}

// prompt returns the edits that add the answer so far to the prompt.
func (s *Stream) prompt() []kvtransfer.Edit {
	text := append(append([]byte{'"'}, s.text...), '"')
	if s.chat {
		messages := bytes.TrimRight(s.body.Get("messages"), " \t\r\n")
		list := append(append([]byte{}, messages[:len(messages)-1]...), `,{"role":"assistant","content":`...)
		list = append(append(list, text...), "}]"...)
		return []kvtransfer.Edit{
			{Key: "messages", Value: list}, {Key: "add_generation_prompt", Value: []byte("false")}, {Key: "continue_final_message", Value: []byte("true")},
		}
	}
	prompt := bytes.TrimSpace(s.body.Get("prompt"))
	if prompt[0] == '[' || s.inStep {
		ids := append(append(append([]byte{'['}, s.promptIDs...), ','), s.output...)
		return []kvtransfer.Edit{{Key: "prompt", Value: append(ids, ']')}}
	}
	return []kvtransfer.Edit{{Key: "prompt", Value: append(prompt[:len(prompt)-1:len(prompt)-1], text[1:]...)}}
}
