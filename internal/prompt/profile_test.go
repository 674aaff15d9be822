package prompt

import (
	"context"
	"testing"
)

func TestProfileOfVersions(t *testing.T) {
	newest := ProfileOf("vllm", "0.33.0")
	for _, c := range []struct {
		engine, version string
		strips, sglang  bool
		rule            contentRule
		unknown         Fact
	}{
		{"vllm", "0.33.0", true, false, ruleNamespaces, 0},
		{"vllm", "0.34.1rc1.dev3+gabc", true, false, ruleNamespaces, 0},
		{"vllm", "", true, false, ruleNamespaces, 0},
		{"", "", true, false, ruleNamespaces, 0},
		{"vllm", "v0.32.1", true, false, ruleMacros, 0},
		{"vllm", "0.30.2", false, false, ruleMacros, 0},
		{"vllm", "0.20.0", false, false, ruleLoops, 0},
		{"vllm", "0.19.1", false, false, ruleLoops, FactGroups},
		{"vllm", "0.17.0", false, false, ruleLoops, FactGroups | FactSalts},
		{"vllm", "0.9", false, false, ruleLoops, FactGroups | FactSalts},
		{"vllm", "nightly", true, false, ruleNamespaces, FactHeader | FactFormat | FactGroups | FactSalts},
		{"sglang", "", false, true, ruleSGLang, FactHistory | FactFinal},
		{"sglang", "0.5.23", false, true, ruleSGLang, FactHistory | FactFinal},
		{"sglang", "0.5.9.post1", false, true, ruleSGLang, FactHistory | FactFinal | FactTools | FactBlocks},
		{"trtllm-serve", "1.3", true, false, ruleNamespaces, otherUnknown},
	} {
		p := ProfileOf(c.engine, c.version)
		if p.strips() != c.strips || p.sglang() != c.sglang || p.rule() != c.rule || Fact(p) != c.unknown {
			t.Errorf("ProfileOf(%q, %q): strips %v, SGLang %v, rule %d, unknown %b; want %v, %v, %d, %b",
				c.engine, c.version, p.strips(), p.sglang(), p.rule(), Fact(p), c.strips, c.sglang, c.rule, c.unknown)
		}
	}
	if newest != 0 {
		t.Errorf("the newest vLLM has the profile %x, want the zero value", newest)
	}
}

// TestRenderingByEngine checks that each engine's rules are applied and that a rendering reports
// the facts it depends on.
func TestRenderingByEngine(t *testing.T) {
	const header = "x-anthropic-billing-header: cc_version=2; cch=0a1b2;"
	vllm, older, sglang := ProfileOf("vllm", "0.33.0"), ProfileOf("vllm", "0.31.0"), ProfileOf("sglang", "0.5.23")
	parts := "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
	for _, c := range []struct {
		name, template string
		kind           Kind
		body           string
		facts          Fact
		want           map[Profile]string
	}{
		{"plain chat", plainTemplate, KindChat, `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"}]}`, 0,
			map[Profile]string{vllm: "[system]S\n[user]q\n[assistant]", older: "[system]S\n[user]q\n[assistant]", sglang: "[system]S\n[user]q\n[assistant]"}},
		{"header in a chat", plainTemplate, KindChat, `{"messages":[{"role":"system","content":"` + header + `\nS"},{"role":"user","content":"q"}]}`, FactHeader,
			map[Profile]string{vllm: "[system]S\n[user]q\n[assistant]", older: "[system]" + header + "\nS\n[user]q\n[assistant]", sglang: "[system]" + header + "\nS\n[user]q\n[assistant]"}},
		{"header as a part", plainTemplate, KindChat, `{"messages":[{"role":"system","content":[{"type":"text","text":"` + header + `"},{"type":"text","text":"S"}]}]}`, FactHeader | FactTexts,
			map[Profile]string{older: "[system]" + header + "\nS\n[assistant]", sglang: "[system]" + header + " S\n[assistant]"}},
		{"header of a user", plainTemplate, KindChat, `{"messages":[{"role":"user","content":"` + header + `"}]}`, 0,
			map[Profile]string{vllm: "[user]" + header + "\n[assistant]"}},
		{"text parts", plainTemplate, KindChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, FactTexts,
			map[Profile]string{vllm: "[user]a\nb\n[assistant]", sglang: "[user]a b\n[assistant]"}},
		{"strings for a template that takes parts", parts, KindChat, `{"messages":[{"role":"user","content":"q"}]}`, FactWrap,
			map[Profile]string{vllm: "[user]<q>", sglang: "[user]q"}},
		{"system blocks", plainTemplate, KindMessages, `{"system":[{"type":"text","text":"` + header + `"},{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":"q"}]}`, FactMessages,
			map[Profile]string{vllm: "[system]AB\n[user]q\n[assistant]", older: "[system]AB\n[user]q\n[assistant]", sglang: "[system]" + header + "\nA\nB\n[user]q\n[assistant]"}},
		{"tool results", plainTemplate, KindMessages, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]},{"type":"text","text":"y"}]}]}`, FactBlocks,
			map[Profile]string{vllm: "[tool]1\n2\n[user]x\ny\n[assistant]", sglang: "[user]x\n[tool]1 2\n[user]y\n[assistant]"}},
		{"tools", "{{ tools | tojson }}", KindChat, `{"messages":[],"tools":[{"type":"function","function":{"parameters":{},"name":"f","x":1}}]}`, FactTools,
			map[Profile]string{vllm: `[{"type": "function", "function": {"name": "f", "description": null, "parameters": {}}}]`,
				sglang: `[{"type": "function", "function": {"parameters": {}, "name": "f", "description": null}, "defer_loading": null}]`}},
		{"tools of an Anthropic body", "{{ tools | tojson }}", KindMessages, `{"messages":[],"tools":[{"name":"f","description":"d","input_schema":{"properties":{}}},{"name":"g","input_schema":{"type":"object"}}]}`, FactTools,
			map[Profile]string{sglang: `[{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"properties": {}, "type": "object"}, "strict": false}, "defer_loading": null}, ` +
				`{"type": "function", "function": {"name": "g", "description": "", "parameters": {"type": "object"}, "strict": false}, "defer_loading": null}]`}},
		{"blocks without text", dumpTemplate, KindMessages, `{"system":[],"messages":[{"role":"user","content":[{"type":"text","text":""}]},{"role":"user","content":[]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}`, FactBlocks,
			map[Profile]string{sglang: `null;{"role": "user", "content": ""}` + "\n" + `{"role": "tool", "content": "", "tool_call_id": "t"}` + "\nTrue"}},
	} {
		m := smallModel(t, folderOf(c.template), Options{})
		for as, want := range c.want {
			got, info, err := m.RenderAs(context.Background(), nil, []byte(c.body), c.kind, as)
			if err != nil || string(got) != want {
				t.Errorf("%s, profile %x: %q, %v, want %q", c.name, uint32(as), got, err, want)
			}
			if info.Facts&c.facts != c.facts || c.facts == 0 && info.Facts != 0 {
				t.Errorf("%s, profile %x: depends on %b, want %b", c.name, uint32(as), info.Facts, c.facts)
			}
		}
	}
}

// TestProfilesOfOneRendering checks that renderings are equal if they do not depend on a differing
// fact.
func TestProfilesOfOneRendering(t *testing.T) {
	vllm, older, oldest, sglang := ProfileOf("vllm", "0.33.0"), ProfileOf("vllm", "0.31.0"), ProfileOf("vllm", "0.20.0"), ProfileOf("sglang", "")
	for _, c := range []struct {
		a, b  Profile
		facts Fact
		want  bool
	}{
		{vllm, sglang, 0, true}, {vllm, sglang, FactTexts, false}, {vllm, older, FactTexts | FactMessages, true},
		{vllm, older, FactHeader, false}, {older, oldest, FactHeader, true}, {older, oldest, FactFormat, false},
	} {
		if got := c.a.Same(c.b, c.facts); got != c.want {
			t.Errorf("%x and %x, facts %b: same %v, want %v", uint32(c.a), uint32(c.b), c.facts, got, c.want)
		}
	}
}
