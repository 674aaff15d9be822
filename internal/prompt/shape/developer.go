package shape

import (
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/value"
)

// FoldDevelopers converts developer messages to system messages for templates without a developer
// role, and joins several system messages into one at the start.
func FoldDevelopers(conv []value.Value) []value.Value {
	found := false
	for i, v := range conv {
		if v.Dict().Text("role") != "developer" {
			continue
		}
		found = true
		d := value.NewDict(4)
		v.Dict().Range(func(k string, v value.Value) bool {
			if k != "tools" {
				d.Set(k, v)
			}
			return true
		})
		d.Set("role", value.String("system"))
		conv[i] = value.FromDict(d)
	}
	if !found {
		return conv
	}
	var system []string
	var rest []value.Value
	scattered := false
	for i, v := range conv {
		if v.Dict().Text("role") != "system" {
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
	d := value.NewDict(2)
	d.Set("role", value.String("system"))
	d.Set("content", value.String(strings.Join(system, "\n\n")))
	return append([]value.Value{value.FromDict(d)}, rest...)
}

func systemText(m *value.Dict) string {
	content, _ := m.Get("content")
	if content.Kind() != value.KindList {
		return content.Str()
	}
	var texts []value.Value
	for _, p := range content.Items() {
		if p.Kind() == value.KindString {
			texts = append(texts, p)
		} else if d := p.Dict(); d != nil {
			if t, ok := d.Get("text"); ok {
				texts = append(texts, t)
			}
		}
	}
	return JoinTexts(texts)
}
