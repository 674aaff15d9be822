package kvtransfer

import (
	"bytes"
	"strconv"
)

var empty = Object{text: []byte("{}")}

// Format is the engine-specific part of a request format.
type Format struct {
	limits []string // fields that limit the response's length
	nested string   // the field with the limits, if they are not in the body itself
	// off fields are set to false in the prefill request if the client set them: nothing is stored
	// or queued there.
	off []string
	// usage is the path of the cached tokens in a JSON response; event is the object around it in a
	// stream event.
	usage []string
	event string
}

// Formats of generating requests.
var (
	Chat        = &Format{limits: []string{"max_tokens", "max_completion_tokens", "min_tokens"}, usage: []string{"usage", "prompt_tokens_details", "cached_tokens"}}
	Completions = &Format{limits: Chat.limits, usage: Chat.usage}
	Messages    = &Format{limits: []string{"max_tokens"}, usage: []string{"usage", "cache_read_input_tokens"}}
	Responses   = &Format{
		limits: []string{"max_output_tokens"}, off: []string{"store", "background"},
		usage: []string{"usage", "input_tokens_details", "cached_tokens"}, event: "response",
	}
	Generate       = &Format{limits: []string{"max_tokens", "min_tokens"}, nested: "sampling_params", usage: Chat.usage}
	GenerateSGLang = &Format{}
)

// formats maps the paths of requests that can be split.
var formats = map[string]*Format{
	"/v1/chat/completions":   Chat,
	"/v1/completions":        Completions,
	"/v1/messages":           Messages,
	"/v1/responses":          Responses,
	"/inference/v1/generate": Generate,
	"/generate":              GenerateSGLang,
}

// PrefillBody returns the body of the prefill request: one token, not streamed, with more edits.
func (a *Format) PrefillBody(o *Object, more ...Edit) Pieces {
	one, no := []byte("1"), []byte("false")
	edits := append([]Edit{{Key: "stream", Value: no}, {Key: "stream_options"}}, more...)
	for _, key := range a.off {
		if o.Get(key) != nil {
			edits = append(edits, Edit{Key: key, Value: no})
		}
	}
	var limits []Edit
	for _, key := range a.limits {
		limits = append(limits, Edit{Key: key, Value: one})
	}
	if a.nested == "" {
		return o.Pieces(append(edits, limits...)...)
	}
	params, err := Parse(o.Get(a.nested))
	if err != nil {
		params = empty
	}
	return o.Pieces(append(edits, Edit{Key: a.nested, Value: params.With(limits...)})...)
}

// FormatOf returns the format for a path whose requests can be split, or nil.
func FormatOf(path string) *Format { return formats[path] }

// Divisible reports whether one KV transfer can serve the request. Engines support one transfer per
// response, so requests with several samples or prompts are not split. Neither are requests for
// results that an engine would recompute (prompt log-probabilities) or store (conversations).
func (a *Format) Divisible(o *Object) bool {
	params := o
	if a.nested != "" {
		if p, err := Parse(o.Get(a.nested)); err == nil {
			params = &p
		}
	}
	switch {
	case !single(params.Get("n")), !single(o.Get("best_of")), Prompts(o.Get("prompt")) > 1, !IsNull(o.Get("prompt_embeds")):
		return false
	case !IsNull(params.Get("prompt_logprobs")), on(o.Get("echo")) && !IsNull(o.Get("logprobs")), on(o.Get("use_beam_search")):
		return false
	case on(o.Get("background")), !IsNull(o.Get("previous_response_id")):
		return false
	}
	for _, key := range a.limits {
		if v := params.Get(key); key != "min_tokens" && !IsNull(v) && Number(v) <= 1 {
			return false
		}
	}
	return true
}

// single reports whether a count is certainly one. Engines read "2", 2.0 and 2e0 as two.
func single(value []byte) bool { return IsNull(value) || string(value) == "1" }

// on reports whether a switch may be on: engines read "yes" and 1 as true.
func on(value []byte) bool { return !IsNull(value) && string(value) != "false" }

// Number returns an integer value, or 0.
func Number(value []byte) int {
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0
	}
	return n
}

// Prompts returns the number of prompts in the prompt field: a list of strings or token lists, one
// string, or one token list.
func Prompts(value []byte) int {
	list, ok := Elements(value)
	if !ok || len(list) == 0 {
		return 1
	}
	if c := list[0]; len(c) > 0 && (c[0] == '"' || c[0] == '[') {
		return len(list)
	}
	return 1
}

// Cached returns the cached prompt tokens in a JSON response, or -1 if not reported.
func (a *Format) Cached(answer []byte) int {
	if len(a.usage) == 0 {
		return -1
	}
	for i := 1; i <= len(a.usage); i++ {
		switch v := Find(answer, a.usage[:i]...); {
		case v == nil:
			return -1
		case string(v) == "null" && i > 1:
			return 0 // no cached tokens
		case i == len(a.usage):
			if n, err := strconv.Atoi(string(v)); err == nil && n >= 0 {
				return n
			}
		}
	}
	return -1
}

// PromptTokens returns the tokens of the prompt in a JSON response, 0 if they are not reported. For some APIs and
// engines, cached tokens are not included.
func (a *Format) PromptTokens(answer []byte) int {
	if len(a.usage) == 0 {
		return 0
	}
	return max(Number(Find(answer, a.usage[0], "prompt_tokens")), Number(Find(answer, a.usage[0], "input_tokens")), 0)
}

// SetCached sets the cached tokens of the prefill request in a JSON response or a stream event.
// Text without usage is returned unchanged.
func (a *Format) SetCached(text []byte, n int, event bool) []byte {
	if event && a.event != "" {
		return inside(text, a.event, func(inner []byte) []byte { return a.setUsage(inner, n) })
	}
	return a.setUsage(text, n)
}

func (a *Format) setUsage(text []byte, n int) []byte {
	if len(a.usage) == 0 {
		return text
	}
	return inside(text, a.usage[0], func(usage []byte) []byte {
		o, err := Parse(usage)
		if err != nil {
			return usage
		}
		value := strconv.AppendInt(nil, int64(n), 10)
		if len(a.usage) == 2 { // Anthropic: input, read and created tokens add up
			if o.Get(a.usage[1]) == nil {
				return usage
			}
			input := Number(o.Get("input_tokens")) + Number(o.Get(a.usage[1])) - n
			return o.With(Edit{Key: a.usage[1], Value: value}, Edit{Key: "input_tokens", Value: strconv.AppendInt(nil, int64(max(input, 0)), 10)})
		}
		details, err := Parse(o.Get(a.usage[1]))
		if err != nil {
			details = empty
		}
		return o.With(Edit{Key: a.usage[1], Value: details.With(Edit{Key: a.usage[2], Value: value})})
	})
}

// AsStream converts a JSON response with one choice to the equivalent stream.
func (a *Format) AsStream(answer *Object, choice []byte, usage bool) []byte {
	c, err := Parse(choice)
	if err != nil {
		return nil
	}
	object := `"text_completion"`
	if a == Chat {
		object = `"chat.completion.chunk"`
		c, _ = Parse(c.With(Edit{Key: "message"}, Edit{Key: "delta", Value: c.Get("message")}, Edit{Key: "disaggregated_params"}))
	}
	chunk := func(choices []byte, more ...Edit) []byte {
		edits := append([]Edit{{Key: "object", Value: []byte(object)}, {Key: "choices", Value: choices}, {Key: "prompt_token_ids"}}, more...)
		text := bytes.ReplaceAll(a.StripTransfer(answer.With(edits...), false), []byte{'\n'}, []byte{' '})
		return append(append([]byte("data: "), text...), "\n\n"...)
	}
	out := chunk(append(append([]byte{'['}, c.Text()...), ']'), Edit{Key: "usage"})
	if usage {
		out = append(out, chunk([]byte("[]"))...)
	}
	return append(out, "data: [DONE]\n\n"...)
}

// inside replaces the object in field key of text by the result of change.
func inside(text []byte, key string, change func([]byte) []byte) []byte {
	o, err := Parse(text)
	if err != nil {
		return text
	}
	value := o.Get(key)
	if IsNull(value) || value[0] != '{' {
		return text
	}
	return o.With(Edit{Key: key, Value: change(value)})
}

// handed are the response fields with internal addresses.
var handed = []string{"kv_transfer_params", "ec_transfer_params", "disaggregated_params"}

// StripTransfer removes non-null KV-transfer fields from a response or an event.
func (a *Format) StripTransfer(text []byte, event bool) []byte {
	if event && a.event != "" {
		text = inside(text, a.event, removeHanded)
	}
	return removeHanded(text)
}

func removeHanded(text []byte) []byte {
	o, err := Parse(text)
	if err != nil {
		return text
	}
	var edits []Edit
	for _, key := range handed {
		if !IsNull(o.Get(key)) {
			edits = append(edits, Edit{Key: key, Value: nil})
		}
	}
	if e, ok := withoutParams(o.Get("choices")); ok {
		edits = append(edits, Edit{Key: "choices", Value: e})
	}
	if edits == nil {
		return text
	}
	return o.With(edits...)
}

// withoutParams removes TensorRT-LLM's KV-transfer field from the choices of a response. ok is
// false if there is none.
func withoutParams(choices []byte) (out []byte, ok bool) {
	if !bytes.Contains(choices, []byte(`"disaggregated_params"`)) {
		return nil, false
	}
	list, _ := Elements(choices)
	out = append(out, '[')
	for i, c := range list {
		if i > 0 {
			out = append(out, ',')
		}
		if o, err := Parse(c); err == nil {
			c = o.With(Edit{Key: "disaggregated_params"})
		}
		out = append(out, c...)
	}
	return append(out, ']'), list != nil
}

// State classifies an event before the response has started.
type State uint8

// Values of State.
const (
	Pending  State = iota // no content yet
	Content               // response content, or its end
	Faulty                // the engine reports an error
	Declined              // the engine has less of the prompt cached than required
)

// quiet are event types that precede the first content.
var quiet = map[string]bool{
	"message_start": true, "content_block_start": true, "ping": true,
	"response.created": true, "response.queued": true, "response.in_progress": true, "response.output_item.added": true, "response.content_part.added": true,
}

// Classify classifies an event before the response has started.
func (a *Format) Classify(event []byte) State {
	if string(Field(event, "event")) == "error" {
		return Faulty
	}
	data := Field(event, "data")
	if data == nil {
		return Pending
	}
	o, err := Parse(data)
	if err != nil {
		return Content // [DONE], or unknown
	}
	if !IsNull(o.Get("error")) || string(o.Get("object")) == `"error"` { // the latter in older engines
		return Faulty
	}
	if kind := Text(o.Get("type")); kind != "" {
		switch {
		case kind == "error" || kind == "response.failed":
			return Faulty
		case quiet[kind]:
			return Pending
		}
		return Content
	}
	choices, ok := Elements(o.Get("choices"))
	if !ok {
		return Content
	}
	for _, c := range choices {
		switch {
		case hasContent(c):
			return Content
		case declined(c):
			return Declined
		}
	}
	return Pending
}

// declines is the finish reason of engines that support cache_hit_threshold and stop immediately.
const declines = `"cache_threshold"`

func declined(choice []byte) bool {
	o, err := Parse(choice)
	return err == nil && string(o.Get("finish_reason")) == declines
}

// Declines reports whether a JSON response means that the engine has less of the prompt cached than
// required, and has not generated anything.
func Declines(answer []byte) bool {
	choices, _ := Elements(Find(answer, "choices"))
	return len(choices) > 0 && declined(choices[0])
}

// ends are contained in the last events of streams.
var ends = [][]byte{[]byte("[DONE]"), []byte(`"message_stop"`), []byte(`"response.completed"`), []byte(`"response.incomplete"`), []byte(`"response.failed"`)}

// Ends reports whether an event is the last of a stream, in any format.
func Ends(event []byte) bool {
	data := Field(event, "data")
	for i, end := range ends {
		if i == 0 && bytes.Equal(data, end) || i > 0 && bytes.Equal(Find(data, "type"), end) {
			return true
		}
	}
	return false
}

// Field returns the value of a stream event's field, with several lines joined by newlines; nil if
// absent.
func Field(event []byte, name string) (value []byte) {
	several := false
	for line := range bytes.Lines(event) {
		if !IsField(line, name) {
			continue
		}
		part := bytes.TrimSpace(line[min(len(name)+1, len(line)):])
		switch {
		case value == nil:
			value = part
		case several:
			value = append(append(value, '\n'), part...)
		default:
			value, several = bytes.Join([][]byte{value, part}, []byte{'\n'}), true
		}
	}
	return value
}

// IsField reports whether a line of an event has the field with that name.
func IsField(line []byte, name string) bool {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return false
	}
	return len(line) == len(name) || line[len(name)] == ':' || line[len(name)] == '\r' || line[len(name)] == '\n'
}

// hasContent reports whether a chunk's choice has any content.
func hasContent(choice []byte) bool {
	o, err := Parse(choice)
	if err != nil {
		return true
	}
	if reason := o.Get("finish_reason"); isNonEmpty(reason) && string(reason) != declines || isNonEmpty(o.Get("text")) || isNonEmpty(o.Get("token_ids")) {
		return true
	}
	delta := o.Get("delta")
	d, err := Parse(delta)
	if delta == nil || err != nil {
		return false
	}
	for _, key := range d.Keys() {
		if key != "role" && isNonEmpty(d.Get(key)) {
			return true
		}
	}
	return false
}

// isNonEmpty reports whether a value is more than null, "", [] or {}.
func isNonEmpty(value []byte) bool {
	return !IsNull(value) && len(value) > 2
}

// Text returns a short string value without escapes, or "".
func Text(value []byte) string {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return ""
	}
	return string(value[1 : len(value)-1])
}
