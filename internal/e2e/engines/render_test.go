//go:build engines

package engines

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// bodies are requests of every shape that maps to a chat, for a model whose template
// knows tools and thinking.
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
	{prompt.KindResponses, "text", `"input":"hi","instructions":"be kind"`},
	{prompt.KindResponses, "items", `"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"message","role":"assistant","id":"m","status":"completed","content":[{"type":"output_text","text":"yes","annotations":[]}]},{"role":"user","content":"more"}]`},
	{prompt.KindResponses, "tools", `"input":"q","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"number"}}},"strict":true},{"type":"function","name":"g","parameters":null}]`},
	{prompt.KindResponses, "tools refused", `"input":"q","tool_choice":"none","tools":[{"type":"function","name":"f","parameters":{}}]`},
	{prompt.KindResponses, "calls", `"input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"},{"type":"function_call_output","call_id":"c","output":"done"}]`},
	{prompt.KindResponses, "effort", `"input":"q","reasoning":{"effort":"low"}`},
	{prompt.KindMessages, "text", `"max_tokens":4,"system":"S","messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "blocks", `"max_tokens":4,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"r"}]}]`},
	{prompt.KindMessages, "thinking off", `"max_tokens":4,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "thinking on", `"max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"q"}]`},
	{prompt.KindMessages, "inline system", `"max_tokens":4,"system":"A","messages":[{"role":"user","content":"q"},{"role":"system","content":"B"},{"role":"user","content":"r"}]`},
	{prompt.KindMessages, "tools", `"max_tokens":4,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"x":1,"\u00e9":"\u00e9"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}],"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"x":{"type":"number"}}}}]`},
}

var renderPaths = map[prompt.Kind]string{
	prompt.KindChat: "/v1/chat/completions/render", prompt.KindResponses: "/v1/responses/render", prompt.KindMessages: "/v1/messages/render",
}

// rendering: prompts are what an engine makes of the same bodies, token for token.
func (r *realRig) rendering(t *testing.T) {
	m, err := prompt.Load(r.model, prompt.Options{Name: tiny})
	if err != nil {
		t.Fatal(err)
	}
	equal := map[prompt.Kind]int{}
	all := map[prompt.Kind]int{}
	for _, b := range bodies {
		body := fmt.Appendf(nil, `{"model":%q,%s}`, tiny, b.body)
		var got struct {
			IDs []uint32 `json:"token_ids"`
		}
		r.post(r.fleet[0].url+renderPaths[b.kind], body, &got)
		want, ok := m.AppendTokens(nil, got.IDs)
		if !ok || len(want) == 0 {
			t.Fatalf("%s %s: %d tokens of the engine have no text", b.kind, b.name, len(got.IDs))
		}
		all[b.kind]++
		text, _, err := m.Render(context.Background(), nil, body, b.kind)
		switch {
		case err != nil:
			t.Errorf("%s %s: %v", b.kind, b.name, err)
		case !bytes.Equal(text, want):
			at := 0
			for at < min(len(text), len(want)) && text[at] == want[at] {
				at++
			}
			t.Errorf("%s %s: from byte %d on here %.80q, at the engine %.80q", b.kind, b.name, at, text[at:], want[at:])
		default:
			equal[b.kind]++
		}
	}
	var table strings.Builder
	for _, k := range []prompt.Kind{prompt.KindChat, prompt.KindResponses, prompt.KindMessages} {
		fmt.Fprintf(&table, "\n| %s | %d of %d |", k, equal[k], all[k])
	}
	t.Logf("\n| body | rendered as vLLM 0.32 does |\n|---|--:|%s", table.String())
}
