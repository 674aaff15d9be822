package prompt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// smallModel writes a model's folder with a byte vocabulary and returns the
// model. files are further files of the folder.
func smallModel(t testing.TB, files map[string]string, o Options) *Model {
	t.Helper()
	dir := smallFolder(t, files)
	m, err := Load(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func smallFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"tokenizer.json": smallVocab}
	for name, data := range files {
		all[name] = data
	}
	for name, data := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// smallVocab holds the printable ASCII characters and two special tokens.
var smallVocab = func() string {
	vocab := map[string]int{}
	for c := '!'; c <= '~'; c++ {
		vocab[string(c)] = len(vocab)
	}
	vocab["Ġ"], vocab["Ċ"] = len(vocab), len(vocab)+1
	n := len(vocab)
	file := object{
		"model":         object{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       object{"type": "ByteLevel"},
		"added_tokens":  []any{object{"id": n, "content": "<s>", "special": true}, object{"id": n + 1, "content": "</s>", "special": true}},
		"post_processor": object{"type": "TemplateProcessing",
			"single":         []any{object{"SpecialToken": object{"id": "<s>"}}, object{"Sequence": object{"id": "A"}}, object{"SpecialToken": object{"id": "</s>"}}},
			"special_tokens": object{"<s>": object{"id": "<s>", "ids": []int{n}}, "</s>": object{"id": "</s>", "ids": []int{n + 1}}}},
	}
	out, err := json.Marshal(file)
	if err != nil {
		panic(err)
	}
	return string(out)
}()

const plainTemplate = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"

const partsTemplate = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'image' %}<img>{% else %}{{ p.text }}|{% endif %}{% endfor %}{{ '\n' }}{% endfor %}"

func folderOf(template string) map[string]string {
	data, err := json.Marshal(object{"chat_template": template, "bos_token": "<s>", "eos_token": object{"content": "</s>"}})
	if err != nil {
		panic(err)
	}
	return map[string]string{"tokenizer_config.json": string(data)}
}

// rendering is a body and the expected text or reason.
type rendering struct {
	name, body, want string
	reason           Reason
	truncated        bool
	ends             []int
	tokens           int
}

func checkRenderings(t *testing.T, m *Model, kind Kind, cases []rendering) {
	t.Helper()
	for _, c := range cases {
		got, info, err := m.Render(t.Context(), []byte("~"), []byte(c.body), kind)
		if ReasonOf(err) != c.reason {
			t.Errorf("%s: error %v, want reason %s", c.name, err, c.reason)
			continue
		}
		if string(got) != "~"+c.want || info.Truncated != c.truncated || !slices.Equal(info.Ends, c.ends) || info.Tokens != c.tokens {
			t.Errorf("%s:\n got %q %+v\nwant %q", c.name, got, info, "~"+c.want)
		}
	}
}

func TestRenderChat(t *testing.T) {
	m := smallModel(t, folderOf(plainTemplate), Options{})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "plain", body: `{"messages":[{"role":"user","content":"hi"}]}`, want: "[user]hi\n[assistant]"},
		{name: "parts", body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b",{"type":"refusal","refusal":"c"},{"type":"text"}]}]}`, want: "[user]a\nb\nc\n[assistant]"},
		{name: "null content", body: `{"messages":[{"role":"assistant","content":null}],"add_generation_prompt":false}`, want: "[assistant]\n"},
		{name: "last of duplicate keys", body: `{"messages":[],"messages":[{"role":"user","content":"x","content":"hi"}]}`, want: "[user]hi\n[assistant]"},
		{name: "escaped key", body: `{"mess\u0061ges":[{"role":"user","content":"hi"}]}`, want: "[user]hi\n[assistant]"},
		{name: "byte order mark", body: "\ufeff" + `{"messages":[{"role":"user","content":"hi"}]}`, want: "[user]hi\n[assistant]"},
		{name: "surrogates", body: `{"messages":[{"role":"user","content":"\ud83d\ude00 \ud83d."}]}`, want: "[user]😀 \ufffd.\n[assistant]"},
		{name: "not UTF-8", body: "{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xc3b\"}]}", want: "[user]a\ufffd\ufffdb\n[assistant]"},
		{name: "special tokens", body: `{"messages":[{"role":"user","content":"hi"}],"add_special_tokens":true}`, want: "<s>[user]hi\n[assistant]</s>"},
		{name: "continue", body: `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":" half "}],"add_generation_prompt":false,"continue_final_message":true}`, want: "[user]q\n[assistant] half "},
		{name: "continue nothing", body: `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null}],"add_generation_prompt":false,"continue_final_message":true}`, want: "[user]q\n[assistant]"},
		{name: "continue parts", body: `{"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b "}]}],"add_generation_prompt":0,"continue_final_message":"true"}`, want: "[assistant]a\nb "},
		{name: "booleans in words", body: `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":"off"}`, want: "[user]hi\n"},
		{name: "tokens handed over", body: `{"messages":[{"role":"user","content":"hi"}],"kv_transfer_params":{"prompt_token_ids":[1,2]}}`, reason: ReasonUnsupported},
		{name: "parameters handed over", body: `{"messages":[{"role":"user","content":"hi"}],"kv_transfer_params":{"do_remote_decode":true}}`, want: "[user]hi\n[assistant]"},
		{name: "continue kept", body: `{"messages":[{"role":"assistant","content":"half "}],"add_generation_prompt":false,"continue_final_message":true}`, want: "[assistant]half "},
		{name: "continue both", body: `{"messages":[],"continue_final_message":true}`, reason: ReasonBody},
		{name: "developer", body: `{"messages":[{"role":"developer","content":"d"},{"role":"user","content":"q"}]}`, want: "[system]d\n[user]q\n[assistant]"},
		{name: "developer later", body: `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"developer","content":"d"}]}`, want: "[system]s\n\nd\n[user]q\n[assistant]"},
		{name: "image", body: `{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"u"}}]}]}`, want: "[user]a\n[user]", truncated: true},
		{name: "no messages", body: `{}`, reason: ReasonBody},
		{name: "message is text", body: `{"messages":["x"]}`, reason: ReasonBody},
		{name: "no role", body: `{"messages":[{"content":"x"}]}`, reason: ReasonBody},
		{name: "content is a number", body: `{"messages":[{"role":"user","content":1}]}`, reason: ReasonBody},
		{name: "unknown part", body: `{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, reason: ReasonBody},
		{name: "tools malformed", body: `{"messages":[],"tools":[1]}`, reason: ReasonBody},
		{name: "own template", body: `{"messages":[],"chat_template":"x"}`, reason: ReasonUnsupported},
		{name: "truncation", body: `{"messages":[],"truncate_prompt_tokens":5}`, reason: ReasonUnsupported},
		{name: "not JSON", body: `{`, reason: ReasonBody},
		{name: "a list", body: `[]`, reason: ReasonBody},
	})
}

func TestRenderParts(t *testing.T) {
	m := smallModel(t, folderOf(partsTemplate), Options{})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "string", body: `{"messages":[{"role":"user","content":"hi"}]}`, want: "[user]hi|\n"},
		{name: "parts", body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, want: "[user]a|b|\n"},
		{name: "image in the middle", body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b"}]}]}`, want: "[user]a|", truncated: true},
		{name: "null", body: `{"messages":[{"role":"assistant"}]}`, want: "[assistant]\n"},
	})
	m = smallModel(t, folderOf(partsTemplate), Options{Content: ContentString})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "forced to a string", body: `{"messages":[{"role":"user","content":"hi"}]}`, want: "[user]||\n"},
	})
}

// TestMediaChangesEarlierText uses a template whose start depends on whether an image follows. Only
// the prefix shared by both versions may be returned.
func TestMediaChangesEarlierText(t *testing.T) {
	src := "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}{% set ns.seen = true %}{% endif %}{% endfor %}{% endfor %}"
	src = "{% set ns = namespace(seen=false) %}" + src + "A{% if ns.seen %}image{% else %}none{% endif %}" + partsTemplate
	m := smallModel(t, folderOf(src), Options{})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "image", body: `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}]}`, want: "A", truncated: true},
	})
}

func TestRenderTools(t *testing.T) {
	src := "{{ tools | tojson }}{% for m in messages %}{{ m.tool_calls | tojson if m.tool_calls is defined else '-' }}{% endfor %}"
	body := `{"messages":[{"role":"assistant","tool_calls":[{"type":"function","id":"i","function":{"name":"f","x":1,"arguments":"{\"b\": 1, \"a\": [1.0]}"}}]},{"role":"assistant","content":"x","tool_calls":[]}],
		"tools":[{"function":{"parameters":{"z":1,"a":2},"name":"f","x":1},"type":"function","y":2}]%s}`
	calls := `[{"id": "i", "function": {"arguments": {"b": 1, "a": [1.0]}, "name": "f", "x": 1}, "type": "function"}]-`
	given := `[{"type": "function", "id": "i", "function": {"name": "f", "x": 1, "arguments": {"b": 1, "a": [1.0]}}}]-`
	dumped := `[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": 1, "a": 2}}}]`
	written := `[{"function": {"parameters": {"z": 1, "a": 2}, "name": "f", "x": 1}, "type": "function", "y": 2}]`
	with := func(extra string) string { return strings.Replace(body, "%s", extra, 1) }
	checkRenderings(t, smallModel(t, folderOf(src), Options{}), KindChat, []rendering{
		{name: "dumped", body: with(""), want: dumped + calls},
		{name: "choice none keeps them", body: with(`,"tool_choice":"none"`), want: dumped + calls},
	})
	checkRenderings(t, smallModel(t, folderOf(src), Options{Tools: ToolsAsWritten, HideTools: true}), KindChat, []rendering{
		{name: "as written", body: with(""), want: written + given},
		{name: "choice none hides them", body: with(`,"tool_choice":"none"`), want: "null" + given},
	})
}

func TestRenderKwargs(t *testing.T) {
	src := "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }} {{ enable_thinking }} {{ reasoning_effort }} {{ x }} {{ documents is none }}"
	m := smallModel(t, folderOf(src), Options{Kwargs: `{"x":1,"enable_thinking":"server"}`})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "defaults", body: `{"messages":[]}`, want: "<s></s>False server  1 True"},
		{name: "from the body", body: `{"messages":[],"chat_template_kwargs":{"x":[2],"enable_thinking":false}}`, want: "<s></s>False False  [2] True"},
		{name: "effort", body: `{"messages":[],"reasoning_effort":"low"}`, want: "<s></s>False server low 1 True"},
	})
	m = smallModel(t, folderOf(src), Options{})
	checkRenderings(t, m, KindChat, []rendering{
		{name: "effort sets thinking", body: `{"messages":[],"reasoning_effort":"none","documents":[{"a":"b"}]}`, want: "<s></s>False False none  False"},
	})
}

func TestTemplateErrors(t *testing.T) {
	m := smallModel(t, folderOf("{{ raise_exception('secret ' + messages[0].content) }}"), Options{})
	_, _, err := m.Render(t.Context(), nil, []byte(`{"messages":[{"role":"user","content":"hi"}]}`), KindChat)
	if ReasonOf(err) != ReasonTemplate || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	m = smallModel(t, nil, Options{})
	if _, _, err = m.Render(t.Context(), nil, []byte(`{"messages":[]}`), KindChat); ReasonOf(err) != ReasonNoTemplate {
		t.Errorf("without a template: %v", err)
	}
	if m.Renderer() != "none" || len(m.Notes()) != 1 {
		t.Errorf("renderer %s, notes %v", m.Renderer(), m.Notes())
	}
	var e *Error
	if !errors.As(err, &e) || e.Unwrap() == nil {
		t.Errorf("%v is no *Error with a cause", err)
	}
}

func TestRenderText(t *testing.T) {
	m := smallModel(t, nil, Options{})
	checkRenderings(t, m, KindCompletions, []rendering{
		{name: "string", body: `{"prompt":"a b"}`, want: "<s>a b</s>"},
		{name: "without special tokens", body: `{"prompt":"a b","add_special_tokens":false}`, want: "a b"},
		{name: "list", body: `{"prompt":["a","bc"],"add_special_tokens":false}`, want: "abc", ends: []int{1, 3}},
		{name: "list of one", body: `{"prompt":["a"]}`, want: "<s>a</s>"},
		{name: "ids", body: `{"prompt":[32,33]}`, want: "AB", tokens: 2},
		{name: "lists of ids", body: `{"prompt":[[32],[33,34]]}`, want: "ABC", ends: []int{1, 3}, tokens: 3},
		{name: "unknown id", body: `{"prompt":[9999]}`, reason: ReasonUnknownToken},
		{name: "id too large", body: `{"prompt":[99999999999]}`, reason: ReasonBody},
		{name: "id negative", body: `{"prompt":[-1]}`, reason: ReasonBody},
		{name: "mixed", body: `{"prompt":[1,"a"]}`, reason: ReasonBody},
		{name: "empty list", body: `{"prompt":[]}`, reason: ReasonBody},
		{name: "null", body: `{"prompt":null}`, reason: ReasonBody},
		{name: "number", body: `{"prompt":3}`, reason: ReasonBody},
		{name: "embeddings of vectors", body: `{"prompt":"a","prompt_embeds":"x"}`, reason: ReasonUnsupported},
		{name: "truncation", body: `{"prompt":"a","truncate_prompt_tokens":1}`, reason: ReasonUnsupported},
	})
	checkRenderings(t, m, KindEmbeddings, []rendering{
		{name: "input", body: `{"input":["a","b"],"add_special_tokens":false}`, want: "ab", ends: []int{1, 2}},
		{name: "chat", body: `{"messages":[{"role":"user","content":"x"}]}`, reason: ReasonUnsupported},
	})
	checkRenderings(t, m, KindGenerate, []rendering{
		{name: "token_ids", body: `{"token_ids":[32,33]}`, want: "AB", tokens: 2},
		{name: "input_ids", body: `{"input_ids":[32]}`, want: "A", tokens: 1},
		{name: "text", body: `{"text":"x"}`, want: "<s>x</s>"},
		{name: "media", body: `{"token_ids":[32],"features":{}}`, reason: ReasonUnsupported},
	})
	checkRenderings(t, m, numKinds, []rendering{{name: "no kind", body: `{}`, reason: ReasonUnsupported}})
}

func TestCompletionsAgainstReference(t *testing.T) {
	ref := newReference(t)
	g := newGen(5)
	for _, name := range realModels {
		m, dir := realModel(t, name)
		for i := range 100 {
			text := g.text()
			raw, _ := json.Marshal(object{"prompt": text})
			var want answer
			ref.Ask(object{"dir": dir, "text": text, "special": true}, &want)
			got, _, err := m.Render(t.Context(), nil, raw, KindCompletions)
			if err != nil {
				t.Fatal(err)
			}
			if ids := m.EncodeRendered(nil, got); !slices.Equal(ids, want.IDs) {
				t.Errorf("%s: %d: %q becomes %q, ids %v, want %v", name, i, text, got, ids, want.IDs)
			}
			if len(want.IDs) == 0 {
				continue
			}
			raw, _ = json.Marshal(object{"prompt": want.IDs})
			if again, _, err := m.Render(t.Context(), nil, raw, KindCompletions); err != nil || string(again) != string(got) {
				t.Errorf("%s: ids of %q decode to %q, %v", name, got, again, err)
			}
		}
	}
}
