package prompt

import "testing"

// dumpTemplate shows the whole conversation.
const dumpTemplate = "{{ tools | tojson }};{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ add_generation_prompt }}"

// surrounded marks renderings to which the tokenizer adds its special tokens.
func surrounded(list []rendering) []rendering {
	for i := range list {
		switch r := &list[i]; {
		case r.truncated:
			r.want = "<s>" + r.want
		case r.reason == ReasonNone:
			r.want = "<s>" + r.want + "</s>"
		}
	}
	return list
}

func TestResponses(t *testing.T) {
	m := smallModel(t, folderOf(dumpTemplate), Options{})
	checkRenderings(t, m, KindResponses, surrounded([]rendering{
		{name: "string", body: `{"input":"hi","instructions":"be kind"}`,
			want: `null;{"role": "system", "content": "be kind"}` + "\n" + `{"role": "user", "content": "hi"}` + "\nTrue"},
		{name: "items", body: `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
			{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}],"summary":[]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"yes"}]},
			{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"},
			{"type":"function_call_output","call_id":"c","output":"done"}]}`,
			want: `null;{"role": "user", "content": "a\nb"}` + "\n" +
				`{"role": "assistant", "content": "yes", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"x": 1}}, "type": "function"}], "reasoning": "hm", "reasoning_content": "hm"}` + "\n" +
				`{"role": "tool", "content": "done", "tool_call_id": "c"}` + "\nTrue"},
		{name: "two calls", body: `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"d","name":"g","input":"raw"}]}`,
			want: `null;{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}, "type": "function"}, {"id": "d", "function": {"name": "g", "arguments": {"input": "raw"}}, "type": "function"}]}` + "\nTrue"},
		{name: "tools", body: `{"input":"q","tools":[{"type":"function","name":"f","parameters":{"a":1},"strict":true}]}`,
			want: `[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"a": 1}, "strict": true}}];{"role": "user", "content": "q"}` + "\nTrue"},
		{name: "tools refused", body: `{"input":"q","tools":[{"type":"function","name":"f"}],"tool_choice":"none"}`,
			want: `[{"type": "function", "function": {"name": "f", "description": null, "parameters": null}}];{"role": "user", "content": "q"}` + "\nTrue"},
		{name: "built-in tool", body: `{"input":"q","tools":[{"type":"web_search"}]}`, reason: ReasonUnsupported},
		{name: "continued response", body: `{"input":"q","previous_response_id":"r"}`, reason: ReasonUnsupported},
		{name: "unknown item", body: `{"input":[{"type":"computer_call"}]}`, reason: ReasonUnsupported},
		{name: "encrypted", body: `{"input":[{"type":"reasoning","encrypted_content":"x"}]}`, reason: ReasonUnsupported},
		{name: "no input", body: `{}`, reason: ReasonBody},
		{name: "item is text", body: `{"input":["x"]}`, reason: ReasonBody},
	}))
	m = smallModel(t, folderOf(plainTemplate), Options{})
	checkRenderings(t, m, KindResponses, surrounded([]rendering{
		{name: "unfinished message", body: `{"input":[{"role":"user","content":"q"},{"type":"message","role":"assistant","status":"incomplete","content":[{"type":"output_text","text":"half"}]}]}`, want: "[user]q\n[assistant]half"},
		{name: "image", body: `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"u"}]}]}`, want: "[user]", truncated: true},
	}))
}

// TestHabits checks that the conversion of an Anthropic body depends on the features that the
// template supports.
func TestHabits(t *testing.T) {
	const roles = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
	const body = `{"system":"A","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"q"},{"role":"system","content":[{"type":"text","text":"B"}]},{"role":"user","content":"r"}]}`
	for _, c := range []struct{ name, template, want string }{
		{"takes both", roles + "{{ reasoning_effort }}{{ enable_thinking }}", "[system]A[user]q[system]B[user]rnoneFalse"},
		{"ignores efforts", roles + "{{ enable_thinking is defined }}", "[system]A[user]q[system]B[user]rTrue"},
		{"knows no effort but high", roles + "{{ 'deep' if reasoning_effort == 'high' else 'usual' }}{{ reasoning_effort }}", "[system]A[user]q[system]B[user]rusualnone"},
		{"takes unknown efforts for one it knows", roles + "{{ 'low' if reasoning_effort == 'low' else 'max' }}", "[system]A[user]q[system]B[user]rlow"},
		{"refuses none", roles + "{{ raise_exception('x') if reasoning_effort == 'none' }}{{ reasoning_effort }}", "[system]A[user]q[system]B[user]rlow"},
		{"system comes first", "{% for m in messages %}{{ raise_exception('x') if m.role == 'system' and not loop.first }}[{{ m.role }}]{{ m.content }}{% endfor %}", "[system]AB[user]q[user]r"},
	} {
		m := smallModel(t, folderOf(c.template), Options{})
		checkRenderings(t, m, KindMessages, []rendering{{name: c.name, body: body, want: c.want}})
	}
}

func TestMessages(t *testing.T) {
	m := smallModel(t, folderOf(dumpTemplate), Options{})
	checkRenderings(t, m, KindMessages, []rendering{
		{name: "plain", body: `{"system":"S","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"text","text":"yo"}]}]}`,
			want: `null;{"role": "system", "content": "S"}` + "\n" + `{"role": "user", "content": "hi"}` + "\n" + `{"role": "assistant", "content": "yo"}` + "\nTrue"},
		{name: "system blocks", body: `{"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"system","content":"C"},{"role":"user","content":"q"}]}`,
			want: `null;{"role": "system", "content": "AB"}` + "\n" + `{"role": "system", "content": "C"}` + "\n" + `{"role": "user", "content": "q"}` + "\nTrue"},
		{name: "tool use", body: `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"x":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"type":"text","text":"go"}]}]}`,
			want: `null;{"role": "assistant", "content": "a", "tool_calls": [{"id": "t", "function": {"arguments": {"x": 1}, "name": "f"}, "type": "function"}], "reasoning": "hm", "reasoning_content": "hm"}` + "\n" +
				`{"role": "tool", "content": "1\n2", "tool_call_id": "t"}` + "\n" + `{"role": "user", "content": "go"}` + "\nTrue"},
		{name: "result only", body: `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]}`, want: `null;{"role": "tool", "content": "r", "tool_call_id": "t"}` + "\nTrue"},
		{name: "tools", body: `{"messages":[],"tools":[{"name":"f","description":"d","input_schema":{"properties":{}}}]}`,
			want: `[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"properties": {}, "type": "object"}}}];True`},
		{name: "unknown block", body: `{"messages":[{"role":"user","content":[{"type":"document"}]}]}`, reason: ReasonUnsupported},
		{name: "result of the assistant", body: `{"messages":[{"role":"assistant","content":[{"type":"tool_result"}]}]}`, reason: ReasonUnsupported},
		{name: "no role", body: `{"messages":[{"content":"x"}]}`, reason: ReasonBody},
		{name: "no messages", body: `{}`, reason: ReasonBody},
	})
	m = smallModel(t, folderOf(plainTemplate), Options{})
	checkRenderings(t, m, KindMessages, []rendering{
		{name: "image", body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{}}]}]}`, want: "[user]", truncated: true},
		{name: "image from a tool", body: `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{}}]}]}]}`, want: "[tool]\n[user]", truncated: true},
	})
}
