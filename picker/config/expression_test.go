package config

import (
	"strings"
	"testing"
)

// TestExpressionPosition: a problem in an expression points at the name within the file, for each
// style of writing it.
func TestExpressionPosition(t *testing.T) {
	for style, want := range map[string]string{
		"expression: load.wating < 2":                          `f:6:17: plugin expression-filter: parameter expression is invalid at line 1, column 1: unknown name load.wating (did you mean "load.waiting"?)`,
		`expression: "true && load.wating < 2"`:                `f:6:26: plugin`,
		"expression: |\n      true &&\n      load.wating < 2":  `f:8: plugin expression-filter: parameter expression is invalid at line 2, column 1: unknown name load.wating`,
		"expression: load.waiting":                             `f:6:17: plugin expression-filter: parameter expression must result in bool, not int`,
		"expression: load.wating < 2 && request.modl == \"a\"": `f:6:36: plugin expression-filter: parameter expression is invalid at line 1, column 20: unknown name request.modl (did you mean "request.model"?)`,
		"expresion: load.waiting < 2":                          `unknown field "expresion"`,
	} {
		text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: expression-filter\n  parameters:\n    " + style + "\n"
		c, problems := Parse("f", []byte(text), Options{})
		if c != nil {
			t.Errorf("%s: accepted", style)
		}
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", style, got, want)
		}
	}
}
