package prompt

import (
	"strings"

	"github.com/grapevine-epp/grapevine/indexer/prompt/jinja"
)

// foldDevelopers turns developer messages into system messages for templates
// that do not know the role, and joins several system messages into one at the
// start.
func foldDevelopers(conv []jinja.Value) []jinja.Value {
	found := false
	for i, v := range conv {
		if text(v.Dict(), "role") != "developer" {
			continue
		}
		found = true
		d := jinja.NewDict(4)
		v.Dict().Range(func(k string, v jinja.Value) bool {
			if k != "tools" {
				d.Set(k, v)
			}
			return true
		})
		d.Set("role", jinja.StringValue("system"))
		conv[i] = jinja.DictValue(d)
	}
	if !found {
		return conv
	}
	var system []string
	var rest []jinja.Value
	scattered := false
	for i, v := range conv {
		if text(v.Dict(), "role") != "system" {
			rest = append(rest, v)
			continue
		}
		scattered = scattered || i > 0
		if s := systemText(v.Dict()); s != "" {
			system = append(system, s)
		}
	}
	if !scattered {
		return conv
	}
	d := jinja.NewDict(2)
	d.Set("role", jinja.StringValue("system"))
	d.Set("content", jinja.StringValue(strings.Join(system, "\n\n")))
	return append([]jinja.Value{jinja.DictValue(d)}, rest...)
}

func systemText(m *jinja.Dict) string {
	content, _ := m.Get("content")
	if content.Kind() != jinja.List {
		return content.Str()
	}
	var texts []jinja.Value
	for _, p := range content.Items() {
		if p.Kind() == jinja.String {
			texts = append(texts, p)
		} else if d := p.Dict(); d != nil {
			if t, ok := d.Get("text"); ok {
				texts = append(texts, t)
			}
		}
	}
	return joinTexts(texts)
}
