package prompt

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/media"
	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// chatKeys are the keys of a chat body that affect the prompt.
var chatKeys = keySet("messages", "tools", "tool_choice", "functions", "add_generation_prompt", "continue_final_message", "add_special_tokens",
	"documents", "mm_processor_kwargs", "media_io_kwargs", "chat_template", "chat_template_kwargs", "reasoning_effort", "truncate_prompt_tokens", "echo",
	"kv_transfer_params")

// completionsKeys are the keys of a completions, embeddings or generate body that affect the
// prompt.
var completionsKeys = keySet("prompt", "input", "text", "input_ids", "token_ids", "prompt_token_ids", "add_special_tokens", "prompt_embeds",
	"truncate_prompt_tokens", "suffix", "messages", "tools", "features")

func keySet(keys ...string) func(string) bool {
	set := make(map[string]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return func(k string) bool { return set[k] }
}

// newChat reads the fields common to all bodies that are converted to chats.
func newChat(body *value.Dict) *chat {
	kwargs, _ := body.Get("chat_template_kwargs")
	return &chat{tools: value.None(), kwargs: kwargs.Dict(), addGeneration: true, altered: media.Altered(body)}
}

// parseChat reads a chat body.
func parseChat(body *value.Dict, o *Options, as Profile) (*chat, error) {
	for _, key := range []string{"chat_template", "truncate_prompt_tokens", "functions"} {
		if v, ok := body.Get(key); ok && v.Kind() != value.KindNone {
			return nil, failure(ReasonUnsupported, "%s in the body", key)
		}
	}
	if v, _ := body.Get("echo"); v.IsTrue() {
		return nil, failure(ReasonUnsupported, "echo in the body")
	}
	ch := newChat(body)
	list, _ := body.Get("messages")
	if list.Kind() != value.KindList {
		return nil, failure(ReasonBody, "messages is a %s", list.Kind())
	}
	ch.messages = list.Items()
	ch.documents, _ = body.Get("documents")
	if ch.effort, _ = body.Get("reasoning_effort"); ch.effort.Kind() == value.KindString {
		ch.facts |= FactHistory
	}
	if handed(body) {
		return nil, failure(ReasonUnsupported, "token ids of another engine in the body")
	}
	ch.addGeneration = flag(body, "add_generation_prompt", true)
	ch.continueFinal = flag(body, "continue_final_message", false)
	ch.addSpecial = flag(body, "add_special_tokens", false)
	if ch.continueFinal || !ch.addGeneration {
		ch.facts |= FactFinal
	}
	if ch.addGeneration && ch.continueFinal {
		return nil, failure(ReasonBody, "continue_final_message with add_generation_prompt")
	}
	ch.noTools = body.Text("tool_choice") == "none"
	tools, ok := body.Get("tools")
	if !ok {
		tools = value.None()
	}
	if tools.Kind() == value.KindList {
		ch.facts |= FactTools
	}
	if as.sglang() {
		if tools, ok = shape.SGLangTools(tools); !ok {
			return nil, failure(ReasonBody, "tools are malformed")
		}
	} else if o.Tools == ToolsDumped {
		if tools, ok = shape.DumpTools(tools); !ok {
			return nil, failure(ReasonBody, "tools are malformed")
		}
	}
	ch.tools = tools
	return ch, nil
}

// handed reports whether a body contains the prompt's token ids from the engine that prefilled it.
// These ids are used instead of the messages.
func handed(body *value.Dict) bool {
	v, _ := body.Get("kv_transfer_params")
	if v.Dict() == nil {
		return false
	}
	ids, ok := v.Dict().Get("prompt_token_ids")
	return ok && ids.Kind() != value.KindNone
}

// flag reads a boolean like engines, which also accept some words and numbers.
func flag(body *value.Dict, key string, otherwise bool) bool {
	v, _ := body.Get(key)
	switch v.Kind() {
	case value.KindBool, value.KindInt, value.KindFloat:
		return v.IsTrue()
	case value.KindString:
		switch strings.ToLower(v.Str()) {
		case "1", "true", "t", "yes", "y", "on":
			return true
		case "0", "false", "f", "no", "n", "off":
			return false
		}
	}
	return otherwise
}

// scratch is the reusable memory of one rendering.
type scratch struct {
	ctx    context.Context
	as     Profile
	limits jinja.Options
	dec    value.Decoder
	body   []byte // the body with invalid UTF-8 replaced
	text   []byte
	vars   []jinja.Var
}

// keepScratch is the largest buffer kept between renderings in bytes. Larger prompts grow their
// buffer by doubling each time.
const keepScratch = 1 << 20

// release clears all data of one request.
func (s *scratch) release() {
	s.ctx, s.limits = nil, jinja.Options{}
	s.dec.Release()
	clear(s.vars)
	s.vars = s.vars[:0]
	if cap(s.body) > keepScratch {
		s.body = nil
	}
	if cap(s.text) > keepScratch {
		s.text = nil
	}
}

// object decodes the wanted keys of a body. Invalid UTF-8 becomes U+FFFD, as in engines.
func (s *scratch) object(body []byte, wanted func(string) bool) (*value.Dict, error) {
	if !utf8.Valid(body) {
		s.body = s.body[:0]
		for len(body) > 0 {
			r, n := utf8.DecodeRune(body)
			s.body = utf8.AppendRune(s.body, r)
			body = body[n:]
		}
		body = s.body
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	obj, err := s.dec.Object(body, wanted)
	if errors.Is(err, value.ErrBounds) {
		return nil, &Error{ReasonBounds, err}
	}
	if err != nil {
		return nil, &Error{ReasonBody, err}
	}
	return obj, nil
}
