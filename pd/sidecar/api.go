package sidecar

import (
	"encoding/json"
	"strconv"

	"github.com/grapevine-epp/grapevine/pd/handover"
)

var empty, _ = handover.Parse([]byte("{}"))

// api is what differs between the request formats of engines.
type api struct {
	name   string
	limits []string // members that bound the length of the answer
	nested string   // the member that holds the limits, where not the body itself
	// unsplit members of the prefill leg that are set to false where the client set
	// them: nothing is stored or queued there.
	off []string
	// usage is the path of the cached tokens in a JSON answer, event that of the
	// object around it in an event of a stream.
	usage []string
	event string
}

var (
	chat        = &api{name: "chat", limits: []string{"max_tokens", "max_completion_tokens", "min_tokens"}, usage: []string{"usage", "prompt_tokens_details", "cached_tokens"}}
	completions = &api{name: "completions", limits: chat.limits, usage: chat.usage}
	messages    = &api{name: "messages", limits: []string{"max_tokens"}, usage: []string{"usage", "cache_read_input_tokens"}}
	responses   = &api{
		name: "responses", limits: []string{"max_output_tokens"}, off: []string{"store", "background"},
		usage: []string{"usage", "input_tokens_details", "cached_tokens"}, event: "response",
	}
	generate       = &api{name: "generate", limits: []string{"max_tokens", "min_tokens"}, nested: "sampling_params", usage: chat.usage}
	generateSGLang = &api{name: "generate"}
)

// apis maps the paths of requests that can be served in two parts.
var apis = map[string]*api{
	"/v1/chat/completions":   chat,
	"/v1/completions":        completions,
	"/v1/messages":           messages,
	"/v1/responses":          responses,
	"/inference/v1/generate": generate,
	"/generate":              generateSGLang,
}

// prefillBody returns the body of the prefill leg: one token, not streamed, with
// more edits.
func (a *api) prefillBody(o *handover.Object, more ...handover.Edit) []byte {
	one, no := []byte("1"), []byte("false")
	edits := append([]handover.Edit{{Key: "stream", Value: no}, {Key: "stream_options"}}, more...)
	for _, key := range a.off {
		if o.Get(key) != nil {
			edits = append(edits, handover.Edit{Key: key, Value: no})
		}
	}
	var limits []handover.Edit
	for _, key := range a.limits {
		limits = append(limits, handover.Edit{Key: key, Value: one})
	}
	if a.nested == "" {
		return o.With(append(edits, limits...)...)
	}
	params, err := handover.Parse(o.Get(a.nested))
	if err != nil {
		params = empty
	}
	return o.With(append(edits, handover.Edit{Key: a.nested, Value: params.With(limits...)})...)
}

// divisible reports whether one hand-over can serve the request. Engines answer
// with one hand-over per response, so several samples or prompts are not split;
// nor is what an engine would compute anew (log-probabilities of the prompt) or
// keeps to itself (stored conversations).
func (a *api) divisible(o *handover.Object) bool {
	params := o
	if a.nested != "" {
		if p, err := handover.Parse(o.Get(a.nested)); err == nil {
			params = &p
		}
	}
	switch {
	case number(params.Get("n")) > 1, number(o.Get("best_of")) > 1, prompts(o.Get("prompt")) > 1:
		return false
	case !handover.IsNull(params.Get("prompt_logprobs")), string(o.Get("echo")) == "true" && !handover.IsNull(o.Get("logprobs")):
		return false
	case string(o.Get("background")) == "true", !handover.IsNull(o.Get("previous_response_id")):
		return false
	}
	for _, key := range a.limits {
		if v := params.Get(key); key != "min_tokens" && !handover.IsNull(v) && number(v) <= 1 {
			return false
		}
	}
	return true
}

// number returns an integer value, or 0.
func number(value []byte) int {
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0
	}
	return n
}

// prompts returns how many prompts the member prompt holds: a list of texts or of
// token lists, one text, or one list of tokens.
func prompts(value []byte) int {
	list, ok := handover.Elements(value)
	if !ok || len(list) == 0 {
		return 1
	}
	if c := list[0]; len(c) > 0 && (c[0] == '"' || c[0] == '[') {
		return len(list)
	}
	return 1
}

// cached returns the cached prompt tokens that a JSON answer reports, -1 where it
// reports none.
func (a *api) cached(answer []byte) int {
	if len(a.usage) == 0 {
		return -1
	}
	for i := 1; i <= len(a.usage); i++ {
		switch v := handover.Find(answer, a.usage[:i]...); {
		case v == nil:
			return -1
		case string(v) == "null" && i > 1:
			return 0 // the engine found nothing
		case i == len(a.usage):
			if n, err := strconv.Atoi(string(v)); err == nil && n >= 0 {
				return n
			}
		}
	}
	return -1
}

// setCached writes the cached tokens of the prefill leg into a JSON answer, or into
// one event of a stream. What has no usage is returned as it is.
func (a *api) setCached(text []byte, n int, event bool) []byte {
	if event && a.event != "" {
		return inside(text, a.event, func(inner []byte) []byte { return a.setUsage(inner, n) })
	}
	return a.setUsage(text, n)
}

func (a *api) setUsage(text []byte, n int) []byte {
	if len(a.usage) == 0 {
		return text
	}
	return inside(text, a.usage[0], func(usage []byte) []byte {
		o, err := handover.Parse(usage)
		if err != nil {
			return usage
		}
		value := strconv.AppendInt(nil, int64(n), 10)
		if len(a.usage) == 2 { // Anthropic's: input, read and created tokens have a sum
			if o.Get(a.usage[1]) == nil {
				return usage
			}
			input := number(o.Get("input_tokens")) + number(o.Get(a.usage[1])) - n
			return o.With(handover.Edit{Key: a.usage[1], Value: value}, handover.Edit{Key: "input_tokens", Value: strconv.AppendInt(nil, int64(max(input, 0)), 10)})
		}
		details, err := handover.Parse(o.Get(a.usage[1]))
		if err != nil {
			details = empty
		}
		return o.With(handover.Edit{Key: a.usage[1], Value: details.With(handover.Edit{Key: a.usage[2], Value: value})})
	})
}

// inside replaces the object that is a member of text by what change makes of it.
func inside(text []byte, key string, change func([]byte) []byte) []byte {
	o, err := handover.Parse(text)
	if err != nil {
		return text
	}
	value := o.Get(key)
	if handover.IsNull(value) || value[0] != '{' {
		return text
	}
	return o.With(handover.Edit{Key: key, Value: change(value)})
}

// handed names the members of answers that hold internal addresses.
var handed = []string{"kv_transfer_params", "ec_transfer_params"}

// withoutHandOver removes hand-over members that are not null from an answer or an
// event.
func (a *api) withoutHandOver(text []byte, event bool) []byte {
	if event && a.event != "" {
		text = inside(text, a.event, removeHanded)
	}
	return removeHanded(text)
}

func removeHanded(text []byte) []byte {
	o, err := handover.Parse(text)
	if err != nil {
		return text
	}
	var edits []handover.Edit
	for _, key := range handed {
		if !handover.IsNull(o.Get(key)) {
			edits = append(edits, handover.Edit{Key: key, Value: nil})
		}
	}
	if edits == nil {
		return text
	}
	return o.With(edits...)
}

// quote returns s as JSON.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}
