package prompt

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
)

// gen makes chat bodies.
type gen struct{ *rand.Rand }

func newGen(seed uint64) gen { return gen{rand.New(rand.NewPCG(seed, 77))} }

var phrases = []string{
	"Hello there, how are you?", "Write a function that reverses a list.", "```go\nfunc f() {\n\treturn\n}\n```", "请把这句话翻译成英文。", "🙂👍🏽 ok", "  leading and trailing  ", "\n\nline ends\n\n", "", " ", "\t",
	"<think>\nlet me see\n</think>\n\nThe answer is 42.", "</think>odd", "<think>open", "a</think>b</think>c", "<tool_response>\nx\n</tool_response>", "<tool_response>x", "<|im_end|>", "<|eot_id|>\n", "\"quotes\" and \\ backslash / slash", "\u00a0nbsp\u3000", "e\u0301 decomposed \u212b", "don't you'll I'M", "1234567 89", "{\"json\": [1, 2]}", "tab\tand \u0001 control \u007f", "<tag> & 'quote'", "The quick brown fox jumps over the lazy dog. ",
}

func (g gen) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g gen) text() string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.pick(phrases...))
	}
	return b.String()
}

type object = map[string]any

// content is a string, null, or parts.
func (g gen) content(nullable bool) any {
	switch n := g.IntN(10); {
	case n == 0 && nullable:
		return nil
	case n == 1:
		return []any{}
	case n <= 3:
		var list []any
		for range 1 + g.IntN(3) {
			if g.IntN(4) == 0 {
				list = append(list, g.text())
			} else {
				list = append(list, object{"type": g.pick("text", "input_text", "output_text"), "text": g.text()})
			}
		}
		return list
	}
	return g.text()
}

func (g gen) arguments() any {
	switch g.IntN(7) {
	case 0:
		return `{"city": "Zürich", "n": 1.50, "deep": {"b": [1, 2.0, 1e3, null, true], "a": "x\ny"}}`
	case 1:
		return "not json"
	case 2:
		return ""
	case 3:
		return `[1, "two"]`
	case 4:
		return `{}`
	case 5:
		return `{"z": "<a href='x'>&", "a": "\u00e9\ud83d\ude00", "big": 123456789012345678901234567890}`
	}
	return object{"k": g.text()}
}

func (g gen) toolCall() object {
	return object{"id": "call_1", "type": "function", "function": object{"name": g.pick("get_weather", "search"), "arguments": g.arguments()}}
}

func (g gen) tool() object {
	f := object{"name": g.pick("get_weather", "search", "run<code>")}
	if g.IntN(4) > 0 {
		f["description"] = g.text()
	}
	if g.IntN(4) > 0 {
		f["parameters"] = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"It's the \"city\" <b>&</b>"},"n":{"type":"number","default":1.0,"minimum":-1e-7}},"required":["city"],"additionalProperties":false}`)
	}
	if g.IntN(4) == 0 {
		f["strict"] = g.IntN(2) == 0
	}
	t := object{"type": "function", "function": f}
	if g.IntN(6) == 0 {
		t["extra"] = 1
	}
	return t
}

// chat makes a chat body.
func (g gen) chat() object {
	var msgs []any
	if g.IntN(3) > 0 {
		msgs = append(msgs, object{"role": g.pick("system", "system", "developer"), "content": g.content(false)})
	}
	turns := 1 + g.IntN(5)
	for i := range turns {
		msgs = append(msgs, object{"role": "user", "content": g.content(false)})
		if i == turns-1 && g.IntN(3) > 0 {
			break
		}
		a := object{"role": "assistant", "content": g.content(true)}
		switch g.IntN(6) {
		case 0:
			a["reasoning_content"] = g.text()
		case 1:
			a["reasoning"] = g.text()
		}
		calls := g.IntN(8)
		if calls <= 2 {
			list := []any{}
			for range calls {
				list = append(list, g.toolCall())
			}
			a["tool_calls"] = list
			msgs = append(msgs, a)
			for range calls {
				msgs = append(msgs, object{"role": "tool", "tool_call_id": "call_1", "content": g.content(false)})
			}
			continue
		}
		msgs = append(msgs, a)
		if g.IntN(12) == 0 {
			msgs = append(msgs, object{"role": g.pick("system", "developer"), "content": g.text()})
		}
	}
	body := object{"model": "m", "messages": msgs, "temperature": 0.5}
	g.extras(body, msgs)
	return body
}

func (g gen) extras(body object, msgs []any) {
	if g.IntN(3) == 0 {
		var tools []any
		for range 1 + g.IntN(3) {
			tools = append(tools, g.tool())
		}
		body["tools"] = tools
	}
	switch g.IntN(8) {
	case 0:
		body["chat_template_kwargs"] = object{"enable_thinking": g.IntN(2) == 0}
	case 1:
		body["reasoning_effort"] = g.pick("none", "low", "high")
	case 2:
		body["add_generation_prompt"] = false
	case 3:
		if msgs[len(msgs)-1].(object)["role"] == "assistant" {
			body["add_generation_prompt"] = false
			body["continue_final_message"] = true
		}
	}
}
