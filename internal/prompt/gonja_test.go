package prompt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/gonja"
)

// TestGonjaAgrees renders random chats by both engines behind a template. What
// gonja refuses or renders must be what jinja does, except where gonja is known
// to be laxer than Python.
func TestGonjaAgrees(t *testing.T) {
	for _, name := range realModels {
		m, dir := realModel(t, name)
		conf, err := readConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		slow, err := gonja.Parse(conf.templates[templateDefault])
		if err != nil {
			t.Fatal(err)
		}
		other := &Model{opts: m.opts, vocab: m.vocab, special: m.special, chat: &template{slow: slow, developer: m.chat.developer}}
		other.pool.New = func() any { return new(scratch) }
		if got := other.Renderer(); got != "gonja" {
			t.Errorf("renderer %s", got)
		}
		g := newGen(11)
		differ, same := 0, 0
		for range 400 {
			raw, err := json.Marshal(g.chat())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(raw), "nbsp") || strings.Contains(string(raw), "123456789012345678901234567890") {
				continue // gonja strips other white space than Python, and has no big integers
			}
			want, _, err := m.Render(nil, raw, KindChat)
			if err != nil {
				continue // gonja prints what Python refuses
			}
			got, _, err := other.Render(nil, raw, KindChat)
			if err != nil || string(got) != string(want) {
				if differ++; differ <= 3 {
					t.Errorf("%s: %s\n got %q, %v\nwant %q", name, raw, got, err, want)
				}
				continue
			}
			same++
		}
		t.Logf("%s: %d renderings agree, %d differ", name, same, differ)
		if same < 150 {
			t.Errorf("%s: only %d chats compared", name, same)
		}
	}
}

// TestGonjaFallback uses a template with a construct that only gonja has.
func TestGonjaFallback(t *testing.T) {
	src := "{% for m in messages recursive %}<{{ m.role }}>{{ m.content.split('x')[-1].strip() }}{% endfor %}" +
		"{{ messages[-1].content }}{{ tools | tojson if tools else '' }}{{ kw.n }}{{ kw.f }}{{ kw.l[-1] }}{{ strftime_now('%Y') }}"
	m := smallModel(t, folder(src), Options{Now: testClock})
	if m.Renderer() != "gonja" || len(m.Notes()) != 1 {
		t.Errorf("renderer %s, notes %v", m.Renderer(), m.Notes())
	}
	checkRenderings(t, m, KindChat, []rendering{
		{name: "recursive loop", body: `{"messages":[{"role":"user","content":" hi "}],"chat_template_kwargs":{"kw":{"n":3,"f":1.5,"l":["z"]}},"tools":[{"type":"function","function":{"name":"<f>","parameters":{"b":[1,null,true],"a":2.0}}}]}`,
			want: `<user>hi hi [{"type": "function", "function": {"name": "<f>", "description": null, "parameters": {"b": [1, null, true], "a": 2.0}}}]31.5z2026`},
	})
	m = smallModel(t, folder("{% for m in messages recursive %}{% endfor %}{{ raise_exception('no') }}"), Options{})
	if _, _, err := m.Render(nil, []byte(`{"messages":[]}`), KindChat); ReasonOf(err) != ReasonTemplate {
		t.Errorf("a failing template: %v", err)
	}
	if _, err := newTemplate("{% include 'x' %}{% if %}", ContentAuto); err == nil {
		t.Error("a template that no engine parses is accepted")
	}
}
