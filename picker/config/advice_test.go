package config

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/pd"
)

// TestAdvice: the advice for each type of other pickers says what to do and what that lacks, and no
// such type is built in.
func TestAdvice(t *testing.T) {
	table := pd.Table()
	for name, r := range foreignTypes {
		verb, _, _ := strings.Cut(r.Use, " ")
		if r.Lost == "" || verb != "use" && verb != "leave" && verb != "remove" {
			t.Errorf("%s: use %q, lost %q", name, r.Use, r.Lost)
		}
		if _, built := table.Find(name); built {
			t.Errorf("%s is built in: its advice is never given", name)
		}
		for _, word := range strings.FieldsFunc(r.Use, func(c rune) bool { return c == ' ' || c == ',' || c == ':' || c == '(' || c == ')' }) {
			if !strings.Contains(word, "-") || strings.HasPrefix(word, "--") || !isType(word) {
				continue
			}
			if _, ok := table.Find(word); !ok {
				t.Errorf("%s: there is no type %s", name, word)
			}
		}
	}
}

// isType reports whether a word of an advice has the form of a plugin type's name.
func isType(word string) bool {
	for _, role := range []string{"-filter", "-scorer", "-producer", "-handler", "-detector", "-decider", "-picker"} {
		if strings.HasSuffix(word, role) {
			return true
		}
	}
	return false
}

// TestPropagatedPriority: the setting survives --print-effective, and excludes another source of the
// engines' priorities.
func TestPropagatedPriority(t *testing.T) {
	head := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nrequestHandler: {propagatePriority: true}\nplugins:\n- {type: queue-scorer}\n"
	c, problems := Parse("f", []byte(head), Options{})
	if c == nil {
		t.Fatal(problems)
	}
	text, err := c.Effective()
	if err != nil {
		t.Fatal(err)
	}
	again, problems := Parse("effective", text, Options{})
	if again == nil || !again.Rules.Propagates || again.Rules.Urgency == nil || again.Hash() != c.Hash() {
		t.Errorf("%v\n%s", problems, text)
	}
	_, problems = Parse("f", []byte(head+"- {type: engine-priority-producer, parameters: {everyEndpoint: true}}\n"), Options{})
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "plugin engine-priority-producer set the priority") {
		t.Errorf("%v", problems)
	}
}
