package prompt

import (
	"strings"
	"testing"
)

func TestLoadTemplates(t *testing.T) {
	list := `{"chat_template":[{"name":"default","template":"D{{ bos_token }}"},{"name":"tool_use","template":"T"}],"bos_token":{"content":"<s>"}}`
	none := `{"messages":[]}`
	tools := `{"messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}`
	cases := []struct {
		name  string
		files map[string]string
		opts  Options
		plain string
		tools string
	}{
		{"list", map[string]string{"tokenizer_config.json": list}, Options{}, "D<s>", "T"},
		{"file over entry", map[string]string{"tokenizer_config.json": list, "chat_template.jinja": "F"}, Options{}, "F", "T"},
		{"json file", map[string]string{"tokenizer_config.json": `{}`, "chat_template.json": `{"chat_template":"J"}`}, Options{}, "J", "J"},
		{"folder of templates", map[string]string{"chat_template.jinja": "F", "additional_chat_templates/tool_use.jinja": "A"}, Options{}, "F", "A"},
		{"special tokens map", map[string]string{"chat_template.jinja": "{{ bos_token }}{{ eos_token is defined }}", "special_tokens_map.json": `{"bos_token":"</s>"}`}, Options{}, "</s>False", "</s>False"},
	}
	for _, c := range cases {
		m := smallModel(t, c.files, c.opts)
		checkRenderings(t, m, KindChat, []rendering{{name: c.name, body: none, want: c.plain}, {name: c.name + ", tools", body: tools, want: c.tools}})
	}
	dir := smallFolder(t, map[string]string{"tokenizer_config.json": list, "other.txt": "O"})
	m, err := Load(dir, Options{Template: dir + "/other.txt"})
	if err != nil {
		t.Fatal(err)
	}
	checkRenderings(t, m, KindChat, []rendering{{name: "option", body: tools, want: "O"}})
}

func TestLoadErrors(t *testing.T) {
	cases := []struct {
		name  string
		files map[string]string
		opts  Options
		want  string
	}{
		{"configuration is no JSON", map[string]string{"tokenizer_config.json": "{"}, Options{}, "malformed JSON"},
		{"configuration is a list", map[string]string{"tokenizer_config.json": "[]"}, Options{}, "not a JSON object"},
		{"template is a number", map[string]string{"tokenizer_config.json": `{"chat_template":1}`}, Options{}, "chat_template is a int"},
		{"template without a name", map[string]string{"tokenizer_config.json": `{"chat_template":[{"template":"x"}]}`}, Options{}, "has no name"},
		{"template does not parse", map[string]string{"chat_template.jinja": "{% if %}"}, Options{}, "chat template"},
		{"template file is missing", nil, Options{Template: "/nonexistent/x"}, "no such file"},
		{"kwargs are no object", nil, Options{Kwargs: "1"}, "no JSON object"},
		{"vocabulary is malformed", map[string]string{"tokenizer.json": "{}"}, Options{}, "malformed vocabulary"},
		{"vocabulary is missing", nil, Options{Vocabulary: "/nonexistent/tokenizer.json"}, "no such file"},
	}
	for _, c := range cases {
		if _, err := Load(smallFolder(t, c.files), c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if _, err := Load(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "no tokenizer.json") {
		t.Errorf("empty folder: %v", err)
	}
}

func TestAddBOS(t *testing.T) {
	body := `{"prompt":"x"}`
	for conf, want := range map[string]string{
		`{"bos_token":"<s>"}`:                       "<s>x</s>",
		`{"bos_token":"<s>","add_bos_token":false}`: "<s>x</s>", // the file's post-processor rules
		`{"bos_token":"<s>","add_bos_token":false,"tokenizer_class":"LlamaTokenizerFast"}`: "x</s>",
		`{"bos_token":"</s>","add_bos_token":true,"tokenizer_class":"GemmaTokenizer"}`:     "</s>x</s>",
	} {
		m := smallModel(t, map[string]string{"tokenizer_config.json": conf}, Options{})
		checkRenderings(t, m, KindCompletions, []rendering{{name: conf, body: body, want: want}})
	}
}

func TestEngineOnly(t *testing.T) {
	m := smallModel(t, map[string]string{"config.json": `{"model_type":"gpt_oss"}`, "chat_template.jinja": "x"}, Options{})
	checkRenderings(t, m, KindChat, []rendering{{name: "chat", body: `{"messages":[]}`, reason: ReasonNoTemplate}})
	checkRenderings(t, m, KindCompletions, []rendering{{name: "text", body: `{"prompt":"x","add_special_tokens":false}`, want: "x"}})
}

// TestEngineOnlyByArchitecture checks that the architecture alone marks a model as engine-only,
// with a note.
func TestEngineOnlyByArchitecture(t *testing.T) {
	m := smallModel(t, map[string]string{"config.json": `{"model_type":"x","architectures":["KimiK3ForConditionalGeneration"]}`, "chat_template.jinja": "x"}, Options{})
	checkRenderings(t, m, KindChat, []rendering{{name: "chat", body: `{"messages":[]}`, reason: ReasonNoTemplate}})
	if n := m.notes; len(n) == 0 || !strings.Contains(n[len(n)-1], "KimiK3") {
		t.Errorf("notes %q", n)
	}
	for _, kind := range []string{"gpt_oss", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k3", "inkling"} {
		if m := smallModel(t, map[string]string{"config.json": `{"model_type":"` + kind + `"}`}, Options{}); !m.EngineOnly() {
			t.Errorf("%s is rendered here", kind)
		}
	}
	if m := smallModel(t, map[string]string{"config.json": `{"architectures":["LlamaForCausalLM"]}`, "chat_template.jinja": "x"}, Options{}); m.EngineOnly() {
		t.Error("a model of another architecture")
	}
}

// TestTekkenIsNoted checks the note for Mistral's own repositories: their chats are rendered by the
// template here, but by code in engines.
func TestTekkenIsNoted(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		noted bool
	}{
		{map[string]string{"chat_template.jinja": "x", "tekken.json": "{}"}, true},
		{map[string]string{"chat_template.jinja": "x", "tokenizer.model.v3": ""}, true},
		{map[string]string{"chat_template.jinja": "x", "tokenizer.model": ""}, false},
		{map[string]string{"tekken.json": "{}"}, false}, // no template: that is noted
	} {
		m := smallModel(t, c.files, Options{})
		if noted := strings.Contains(strings.Join(m.Notes(), "\n"), "mistral_common"); noted != c.noted {
			t.Errorf("%v: notes %q", c.files, m.Notes())
		}
	}
}

// TestDummyPrefix renders for a SentencePiece vocabulary: the output is spelled
// as its tokens are.
func TestDummyPrefix(t *testing.T) {
	vocab := `{"model":{"type":"BPE","byte_fallback":true,"vocab":{"<s>":0,"\u2581":1,"a":2,"\u2581a":3,"<0xC3>":4,"<0xA9>":5,"[":6,"]":7,"\u2581[":8},"merges":["\u2581 a","\u2581 ["]},
		"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]},
		"added_tokens":[{"id":0,"content":"<s>","special":true}],
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[0]}}}}`
	const template = "<s>{% for m in messages %}[{{ m.content }}]{% endfor %}"
	m := smallModel(t, map[string]string{"tokenizer.json": vocab, "chat_template.jinja": template}, Options{})
	checkRenderings(t, m, KindCompletions, []rendering{
		{name: "text", body: `{"prompt":"a a"}`, want: "<s> a a"},
		{name: "ids", body: `{"prompt":[0,3,3,4,5]}`, want: "<s> a aé", tokens: 5},
		{name: "several", body: `{"prompt":["a"," a"]}`, want: "<s> a<s>  a", ends: []int{5, 11}},
	})
	checkRenderings(t, m, KindChat, []rendering{{name: "chat", body: `{"messages":[{"role":"user","content":"a"}]}`, want: "<s> [a]"}})
	// Llama's tokenizer class inserts the space itself and ignores the file's setting.
	for _, c := range []struct{ conf, model, chat, text, spaced string }{
		{`{"tokenizer_class":"LlamaTokenizer","legacy":false}`, `{"model_type":"llama"}`, "<s>[a]", " a<s>[", " a"},
		{`{"tokenizer_class":"LlamaTokenizerFast"}`, `{"model_type":"llama"}`, "<s>[a]", " a<s>[", " a"},
		{`{"tokenizer_class":"LlamaTokenizer","legacy":true}`, `{"model_type":"llama"}`, "<s> [a]", " a<s> [", " a"},
		{`{"tokenizer_class":"LlamaTokenizer","add_prefix_space":false}`, `{"model_type":"llama"}`, "<s>[a]", "a<s>[", " a"},
		{`{"tokenizer_class":"LlamaTokenizer","legacy":false}`, `{"model_type":"mistral"}`, "<s> [a]", " a<s> [", "  a"},
		{`{"tokenizer_class":"PreTrainedTokenizerFast"}`, `{"model_type":"llama"}`, "<s> [a]", " a<s> [", "  a"},
	} {
		m := smallModel(t, map[string]string{"tokenizer.json": vocab, "chat_template.jinja": template, "tokenizer_config.json": c.conf, "config.json": c.model}, Options{})
		checkRenderings(t, m, KindChat, []rendering{{name: c.conf, body: `{"messages":[{"role":"user","content":"a"}]}`, want: c.chat}})
		checkRenderings(t, m, KindCompletions, []rendering{
			{name: c.conf, body: `{"prompt":"a<s>[","add_special_tokens":false}`, want: c.text},
			{name: c.conf, body: `{"prompt":" a","add_special_tokens":false}`, want: c.spaced},
		})
		if noted := strings.Contains(strings.Join(m.Notes(), "\n"), "transformers 5"); noted != (c.chat == "<s>[a]" || strings.Contains(c.conf, "legacy\":true")) {
			t.Errorf("%s: notes %q", c.conf, m.Notes())
		}
	}
}
