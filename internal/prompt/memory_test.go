package prompt

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// hostile returns bodies of about size bytes with as many values as fit. With names, it returns
// only the named bodies.
func hostile(size int, names ...string) map[string][]byte {
	out := map[string][]byte{}
	wanted := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	body := func(name, head, unit, tail string) {
		if !wanted(name) {
			return
		}
		b := append(make([]byte, 0, size+64), head...)
		b = append(b, bytes.Repeat([]byte(unit+","), (size-len(head)-len(tail))/(len(unit)+1))...)
		out[name] = append(b[:len(b)-1], tail...)
	}
	keys := func(name, head, value, tail string) {
		if !wanted(name) {
			return
		}
		b := append(make([]byte, 0, size+64), head...)
		for i := 0; len(b) < size; i++ {
			b = fmt.Appendf(b, `"%x":%s,`, i, value)
		}
		out[name] = append(b[:len(b)-1], tail...)
	}
	const user = `{"model":"m","messages":[{"role":"user","content":"a"}],`
	keys("keys of the body", user, "1", "}")
	for _, unit := range []string{"{}", "[]", "1", `""`, `"\n"`, "{\"\":0}", "[[]]", "1.5", "null"} {
		body("documents "+unit, user+`"documents":[`, unit, "]}")
		body("tools "+unit, user+`"tools":[`, unit, "]}")
		body("messages "+unit, `{"model":"m","messages":[`, unit, "]}")
		body("parts "+unit, `{"model":"m","messages":[{"role":"user","content":[`, unit, "]}]}")
		body("kwargs "+unit, user+`"chat_template_kwargs":{"x":[`, unit, "]}}")
		keys("keys of kwargs "+unit, user+`"chat_template_kwargs":{`, unit, "}}")
	}
	for _, unit := range []string{`{"role":"user","content":"a"}`, `{"role":"user","content":[{"type":"text","text":"a"}]}`, `{"role":"tool","content":""}`,
		`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"[[],[],[],[],[],[],[]]"}}]}`} {
		body("messages "+unit, `{"model":"m","messages":[`, unit, "]}")
	}
	body("tools", user+`"tools":[`, `{"type":"function","function":{"name":"f","parameters":{}}}`, "]}")
	body("prompts", `{"model":"m","prompt":[`, `"a"`, "]}")
	return out
}

// TestMemoryLaw renders bodies made entirely of values. None may exceed its memory limit, and
// template output is charged to the budget.
func TestMemoryLaw(t *testing.T) {
	dir := smallFolder(t, folderOf(`{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}`+
		`{% for d in documents or [] %}{{ d|tojson }}{% endfor %}{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{{ x }}`))
	bodies := hostile(512 << 10)
	for name, body := range hostile(8<<20, "documents {}", "tools []", "messages {}", "kwargs {}", "keys of kwargs {}") {
		bodies["much: "+name] = body
	}
	for _, style := range []ToolStyle{ToolsAsWritten, ToolsDumped} {
		b := budget.New(4 << 30)
		models := NewModels(ModelsOptions{Budget: b})
		models.Set([]Config{{Path: dir, Options: Options{Name: "m", Tools: style, Now: testClock}}})
		if err := models.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, body := range bodies {
			kind := KindChat
			if name == "prompts" {
				kind = KindCompletions
			}
			if taken := allocated(func() { models.Render(t.Context(), "m", nil, body, kind) }); taken > renderBase+renderFactor*len(body) {
				t.Errorf("%s: %.1f bytes for each of %d", name, float64(taken)/float64(len(body)), len(body))
			}
			if used := b.Used(budget.Work); used != 0 {
				t.Fatalf("%s: %d bytes were not given back", name, used)
			}
		}
		models.Close()
	}
}

// allocated returns the number of bytes that f allocates, whether or not it retains them.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestTemplatesPay renders a template whose output is much larger than its input. It must request
// memory and stop if the request is denied.
func TestTemplatesPay(t *testing.T) {
	m := smallModel(t, folderOf("{% for i in range(3000) %}{% set x = messages[0].content * 1000 %}{% endfor %}"), Options{Now: testClock})
	body := []byte(`{"messages":[{"role":"user","content":"abc"}]}`)
	asked := 0
	if _, _, err := m.render(context.Background(), nil, body, KindChat, 0, func(n int) bool { asked += n; return true }); err != nil || asked < 8<<20 || asked > 10<<20 {
		t.Errorf("%d bytes asked for, %v", asked, err)
	}
	if _, _, err := m.render(context.Background(), nil, body, KindChat, 0, func(int) bool { return false }); ReasonOf(err) != ReasonBounds {
		t.Errorf("without memory: %v", err)
	}
}

// TestLargePromptsReuseBuffers checks that the second rendering of a prompt of 400 KB allocates
// only one copy, for the decoded messages.
func TestLargePromptsReuseBuffers(t *testing.T) {
	m, _ := realModel(t, "qwen3")
	body := bytes.Replace(benchChat(390_000, 21, false), []byte("Gossip"), []byte("Gossip\u0301"), 1) // to be normalised
	dst, _, err := m.Render(t.Context(), nil, body, KindChat)
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would empty the pool
	const n = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		if dst, _, err = m.Render(t.Context(), dst[:0], body, KindChat); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > uint64(len(body)*5/4) {
		t.Errorf("rendering %d bytes allocates %d bytes, want about one copy of it", len(body), each)
	}
}
