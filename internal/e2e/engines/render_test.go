//go:build engines

package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// bodies are requests of every shape that maps to a chat, for a model whose template supports tools
// and thinking.
var bodies = []struct {
	kind prompt.Kind
	name string
	body string
}{
	{prompt.KindChat, "plain", `"messages":[{"role":"system","content":"S"},{"role":"user","content":"hi \u6587 \ud83c\udf47"}]`},
	{prompt.KindChat, "parts", `"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":null},{"role":"user","content":"c"}]`},
	{prompt.KindChat, "developer", `"messages":[{"role":"developer","content":"D"},{"role":"user","content":"q"}]`},
	{prompt.KindChat, "thinking off", `"messages":[{"role":"user","content":"q"}],"chat_template_kwargs":{"enable_thinking":false}`},
	{prompt.KindChat, "effort", `"messages":[{"role":"user","content":"q"}],"reasoning_effort":"none"`},
	{prompt.KindChat, "continued", `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"half of"}],"add_generation_prompt":false,"continue_final_message":true`},
	{prompt.KindChat, "reasoning", `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning":"because"},{"role":"user","content":"r"}]`},
	{prompt.KindChat, "tools", `"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"z":{"type":"number","default":1e3},"a":{"type":"string"}}},"strict":true,"other":1}}]`},
	{prompt.KindChat, "tool calls", `"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},{"role":"tool","tool_call_id":"c","content":"done"}],"tools":[{"type":"function","function":{"name":"f","description":"d"}}]`},
	{prompt.KindChat, "tools refused", `"messages":[{"role":"user","content":"q"}],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{}}}]`},
	{prompt.KindChat, "continued, space around", `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"  half  "}],"add_generation_prompt":0,"continue_final_message":"true"`},
	{prompt.KindChat, "continued from nothing", `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null}],"add_generation_prompt":false,"continue_final_message":true`},
	{prompt.KindChat, "fifty marks", `"messages":[{"role":"user","content":"a` + strings.Repeat(`\u0300`, 50) + `"}]`},
	{prompt.KindChat, "tools among the arguments", `"messages":[{"role":"user","content":"q"}],"chat_template_kwargs":{"tools":[{"type":"function","function":{"name":"f"}}]}`},
	{prompt.KindChat, "arguments that are no object", `"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"[1]"}}]},{"role":"tool","tool_call_id":"c","content":"done"}]`},
	{prompt.KindChat, "calls in other orders", `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"index":0,"type":"function","function":{"arguments":"{}","name":"f","x":1},"id":"c"},{"function":{"name":"g","arguments":"{\"b\":[1.0]}"},"id":"d","type":"function"}]},{"role":"tool","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}],"tool_call_id":"c"},{"role":"tool","content":"z","tool_call_id":"d","name":"g"}]`},
	{prompt.KindChat, "names", `"messages":[{"role":"system","name":"s","content":"S"},{"role":"user","name":"ann","content":"q"},{"role":"assistant","name":"bob","content":"a","reasoning_content":"hm"},{"role":"user","content":"r"}]`},
	{prompt.KindResponses, "text", `"input":"hi","instructions":"be kind"`},
	{prompt.KindResponses, "items", `"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"message","role":"assistant","id":"m","status":"completed","content":[{"type":"output_text","text":"yes","annotations":[]}]},{"role":"user","content":"more"}]`},
	{prompt.KindResponses, "tools", `"input":"q","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"number"}}},"strict":true},{"type":"function","name":"g","parameters":null}]`},
	{prompt.KindResponses, "tools refused", `"input":"q","tool_choice":"none","tools":[{"type":"function","name":"f","parameters":{}}]`},
	{prompt.KindResponses, "calls", `"input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c","output":"done"}]`},
	{prompt.KindResponses, "effort", `"input":"q","reasoning":{"effort":"low"}`},
	{prompt.KindResponses, "two calls", `"input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call","call_id":"d","name":"g","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c","output":"1"},{"type":"function_call_output","call_id":"d","output":"2"},{"role":"user","content":"r"}]`},
	{prompt.KindMessages, "text", `"max_tokens":4,"system":"S","messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "blocks", `"max_tokens":4,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"r"}]}]`},
	{prompt.KindMessages, "thinking off", `"max_tokens":4,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "thinking on", `"max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "thought", `"max_tokens":4,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{}},{"type":"tool_use","id":"u","name":"g","input":{"b":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"type":"tool_result","tool_use_id":"u"},{"type":"text","text":"go"}]}]`},
	{prompt.KindMessages, "inline system", `"max_tokens":4,"system":"A","messages":[{"role":"user","content":"q"},{"role":"system","content":"B"},{"role":"user","content":"r"}]`},
	{prompt.KindMessages, "tools", `"max_tokens":4,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"x":1,"\u00e9":"\u00e9"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}],"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"x":{"type":"number"}}}}]`},
}

var renderPaths = map[prompt.Kind]string{
	prompt.KindChat: "/v1/chat/completions/render", prompt.KindResponses: "/v1/responses/render", prompt.KindMessages: "/v1/messages/render",
}

// asSent returns the body of a request for a model.
func asSent(body string) []byte { return fmt.Appendf(nil, `{"model":%q,%s}`, tiny, body) }

// rendered counts bodies by kind, and bodies with equal rendering.
type rendered struct{ equal, all map[prompt.Kind]int }

// compare renders a body and compares it with the engine's tokens.
func (r *rendered) compare(t *testing.T, m *prompt.Model, kind prompt.Kind, name, body string, ids []uint32) {
	t.Helper()
	if r.all == nil {
		r.equal, r.all = map[prompt.Kind]int{}, map[prompt.Kind]int{}
	}
	want, ok := m.AppendTokens(nil, ids)
	if !ok || len(want) == 0 {
		t.Fatalf("%s %s: %d tokens of the engine have no text", kind, name, len(ids))
	}
	r.all[kind]++
	text, _, err := m.Render(context.Background(), nil, asSent(body), kind)
	switch {
	case err != nil:
		t.Errorf("%s %s: %v", kind, name, err)
	case !bytes.Equal(text, want):
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		t.Errorf("%s %s: from byte %d on here %.80q, at the engine %.80q", kind, name, at, text[at:], want[at:])
	default:
		r.equal[kind]++
	}
}

func (r *rendered) log(t *testing.T, by string) {
	t.Helper()
	var table strings.Builder
	for _, k := range []prompt.Kind{prompt.KindChat, prompt.KindResponses, prompt.KindMessages} {
		fmt.Fprintf(&table, "\n| %s | %d of %d |", k, r.equal[k], r.all[k])
	}
	t.Logf("\n| body | rendered as %s does |\n|---|--:|%s", by, table.String())
}

// rendering compares prompts with an engine's prompts for the same bodies, token by token.
func (r *realRig) rendering(t *testing.T) {
	m, err := prompt.Load(r.model, prompt.Options{Name: tiny})
	if err != nil {
		t.Fatal(err)
	}
	var all rendered
	for _, b := range bodies {
		var got struct {
			IDs []uint32 `json:"token_ids"`
		}
		r.post(r.fleet[0].url+renderPaths[b.kind], asSent(b.body), &got)
		all.compare(t, m, b.kind, b.name, b.body, got.IDs)
	}
	all.log(t, "vLLM 0.32")
}

// showAll is a template that prints all its variables.
const showAll = "{{ tools | default(none) | tojson }};{{ documents | default(none) | tojson }};{% for m in messages %}{{ m | tojson }}\n{% endfor %}{{ add_generation_prompt }};{{ reasoning_effort }};{{ enable_thinking }}"

// TestRenderings compares prompts with the prompts of the newest vLLM's code for the same bodies.
// The templates take contents as text or as parts, with and without thinking, and one prints all
// its variables.
func TestRenderings(t *testing.T) {
	var sent [][2]any
	for _, b := range bodies {
		sent = append(sent, [2]any{b.kind.String(), json.RawMessage(asSent(b.body))})
	}
	in, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	templates := []struct{ name, template string }{
		{"its own template", ""},
		{"all is shown", showAll},
		{"system comes first", "{% for m in messages %}{{ raise_exception('x') if m.role == 'system' and not loop.first }}[{{ m.role }}]{{ m.content }}{% endfor %}{{ reasoning_effort }}"},
		{"parts", "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}<{{ c.type }}>{{ c.text }}{% endfor %}{% endif %}{% endfor %}"},
	}
	var dirs []string
	for _, c := range templates {
		dir := writeTiny(t)
		dirs = append(dirs, dir)
		if c.template == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(c.template), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	cmd := python(t, versions[0], "render.py", dirs...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, tail(stderr.String()))
	}
	var got [][]json.RawMessage
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %.200s", err, out)
	}
	for n, c := range templates {
		t.Run(c.name, func(t *testing.T) {
			m, err := prompt.Load(dirs[n], prompt.Options{Name: tiny})
			if err != nil {
				t.Fatal(err)
			}
			var all rendered
			for i, b := range bodies {
				var ids []uint32
				if err := json.Unmarshal(got[n][i], &ids); err == nil {
					all.compare(t, m, b.kind, b.name, b.body, ids)
					continue
				}
				t.Logf("%s %s is refused there: %.200s", b.kind, b.name, got[n][i])
			}
			if all.all[prompt.KindChat]+all.all[prompt.KindResponses]+all.all[prompt.KindMessages] < len(bodies)-3 {
				t.Errorf("%v bodies compared", all.all)
			}
			all.log(t, "vLLM "+versions[0])
		})
	}
}
