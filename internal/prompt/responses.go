package prompt

import (
	"github.com/grapevine-epp/grapevine/internal/prompt/shape"
	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// responsesKeys are the keys of a Responses body that affect the prompt.
var responsesKeys = keySet("input", "instructions", "tools", "tool_choice", "previous_response_id", "previous_input_messages",
	"reasoning", "chat_template_kwargs", "truncation", "prompt", "conversation", "mm_processor_kwargs", "media_io_kwargs")

// responsesChat converts a Responses body to a chat.
func responsesChat(body *value.Dict) (*chat, error) {
	for _, key := range []string{"previous_response_id", "previous_input_messages", "prompt", "conversation"} {
		if v, ok := body.Get(key); ok && v.Kind() != value.KindNone {
			return nil, failure(ReasonUnsupported, "%s refers to what only the engine knows", key)
		}
	}
	r := &responses{}
	if s := body.Text("instructions"); s != "" {
		r.add("system", value.String(s))
	}
	input, _ := body.Get("input")
	ch := newChat(body)
	ch.callsAsGiven = true
	ch.addSpecial = true // vLLM's tokenizer adds special tokens to the template's output for Responses
	switch input.Kind() {
	case value.KindString:
		r.add("user", input)
	case value.KindList:
		for _, it := range input.Items() {
			if err := r.item(it); err != nil {
				return nil, err
			}
		}
		ch.continueFinal = partialItem(input.Items())
		ch.addGeneration = !ch.continueFinal
	default:
		return nil, failure(ReasonBody, "input is a %s", input.Kind())
	}
	ch.messages = r.messages
	if reasoning, _ := body.Get("reasoning"); reasoning.Dict() != nil {
		ch.effort, _ = reasoning.Dict().Get("effort")
	}
	tools, err := responsesTools(body)
	if err != nil {
		return nil, err
	}
	ch.tools = tools
	ch.noTools = body.Text("tool_choice") == "none"
	return ch, nil
}

// responses collects messages; several items may form one message.
type responses struct{ messages []value.Value }

func (r *responses) add(role string, content value.Value) *value.Dict {
	d := value.NewDict(4)
	d.Set("role", value.String(role))
	if content.Kind() != value.KindUndefined {
		d.Set("content", content)
	}
	r.messages = append(r.messages, value.FromDict(d))
	return d
}

// assistant returns the last message if it is an assistant message without key, and otherwise a new
// one.
func (r *responses) assistant(key string) *value.Dict {
	if n := len(r.messages); n > 0 {
		if d := r.messages[n-1].Dict(); d.Text("role") == "assistant" {
			if _, ok := d.Get(key); !ok {
				return d
			}
		}
	}
	return r.add("assistant", value.Value{})
}

// item adds one input item.
func (r *responses) item(v value.Value) error {
	d := v.Dict()
	if d == nil {
		return failure(ReasonBody, "an input item is a %s", v.Kind())
	}
	switch typ := d.Text("type"); typ {
	case "function_call":
		if ns := d.Text("namespace"); ns != "" {
			return failure(ReasonUnsupported, "a namespaced tool call")
		}
		args, _ := d.Get("arguments")
		r.toolCall(d, args)
	case "custom_tool_call":
		in, _ := d.Get("input")
		args := value.NewDict(1)
		args.Set("input", in)
		r.toolCall(d, value.FromDict(args))
	case "function_call_output", "custom_tool_call_output":
		out, _ := d.Get("output")
		id, _ := d.Get("call_id")
		r.add("tool", out).Set("tool_call_id", id)
	case "reasoning":
		return r.reasoning(d)
	case "message", "":
		return r.message(d)
	default:
		return failure(ReasonUnsupported, "an input item of another type")
	}
	return nil
}

func (r *responses) toolCall(d *value.Dict, args value.Value) {
	fn := value.NewDict(2)
	name, _ := d.Get("name")
	fn.Set("name", name)
	fn.Set("arguments", args)
	call := value.NewDict(3)
	id, _ := d.Get("call_id")
	call.Set("id", id)
	call.Set("function", value.FromDict(fn))
	call.Set("type", value.String("function"))

	var m *value.Dict
	if n := len(r.messages); n > 0 && r.messages[n-1].Dict().Text("role") == "assistant" {
		m = r.messages[n-1].Dict()
	} else {
		m = r.add("assistant", value.Value{})
	}
	calls, _ := m.Get("tool_calls")
	m.Set("tool_calls", value.List(append(append([]value.Value(nil), calls.Items()...), value.FromDict(call))))
}

func (r *responses) reasoning(d *value.Dict) error {
	if v, ok := d.Get("encrypted_content"); ok && v.IsTrue() {
		return failure(ReasonUnsupported, "encrypted reasoning")
	}
	said := value.String("")
	for _, key := range []string{"content", "summary"} {
		if list, _ := d.Get(key); len(list.Items()) > 0 && list.Items()[0].Dict() != nil {
			said, _ = list.Items()[0].Dict().Get("text")
			break
		}
	}
	r.assistant("reasoning").Set("reasoning", said)
	return nil
}

func (r *responses) message(d *value.Dict) error {
	role := d.Text("role")
	content, _ := d.Get("content")
	if role != "assistant" {
		r.messages = append(r.messages, value.FromDict(d))
		return nil
	}
	if list := content.Items(); len(list) > 0 && list[0].Dict() != nil {
		content, _ = list[0].Dict().Get("text")
	}
	if content.Kind() == value.KindString {
		r.assistant("content").Set("content", content)
		return nil
	}
	r.messages = append(r.messages, value.FromDict(d))
	return nil
}

// partialItem reports whether the last item is an unfinished message for the engine to continue.
func partialItem(items []value.Value) bool {
	if len(items) == 0 || items[len(items)-1].Dict() == nil {
		return false
	}
	d := items[len(items)-1].Dict()
	if typ := d.Text("type"); typ != "" && typ != "message" && typ != "reasoning" {
		return false
	}
	status := d.Text("status")
	return status == "in_progress" || status == "incomplete"
}

// responsesTools converts flat function tools to the chat format.
func responsesTools(body *value.Dict) (value.Value, error) {
	v, _ := body.Get("tools")
	if len(v.Items()) == 0 {
		return value.None(), nil
	}
	var out []value.Value
	for _, it := range v.Items() {
		if it.Dict().Text("type") != "function" {
			return v, failure(ReasonUnsupported, "a built-in tool")
		}
		out = append(out, shape.FunctionTool(shape.Pick(it.Dict(), "name", "description", "parameters"), it.Dict()))
	}
	return value.List(out), nil
}
