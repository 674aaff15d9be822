package prompt

import (
	"fmt"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja/syntax"
)

// template is one chat template.
type template struct {
	*jinja.Template
	parts     [numRules]bool // contents are lists of parts, by rule
	varies    bool           // rules differ
	developer bool           // the template supports the developer role
}

// newTemplate parses a chat template. If the template uses a construct that package jinja does not
// support, the error wraps [jinja.ErrUnsupported] and names it.
func newTemplate(source string, format ContentFormat) (*template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("prompt: chat template: %w", err)
	}
	t := &template{Template: parsed, developer: parsed.Mentions("developer")}
	for rule := range t.parts {
		t.parts[rule] = format == ContentParts
		if format == ContentAuto {
			t.parts[rule] = takesParts(parsed, source, contentRule(rule))
		}
		t.varies = t.varies || t.parts[rule] != t.parts[0]
	}
	return t, nil
}

// mediaWords are words that make SGLang pass parts to a template, wherever they occur in it.
var mediaWords = [...]string{"image", "audio", "video", "vision"}

func takesParts(t *jinja.Template, source string, rule contentRule) bool {
	switch rule {
	case ruleNamespaces:
		return t.IteratesContent(syntax.RuleNamespaces)
	case ruleMacros:
		return t.IteratesContent(syntax.RuleMacros)
	case ruleLoops:
		return t.IteratesContent(syntax.RuleLoops)
	}
	for _, word := range mediaWords {
		if strings.Contains(source, word) {
			return true
		}
	}
	return t.IteratesContent(syntax.RuleNames)
}

// renderer returns how the model's chats are rendered, for status pages.
func (m *Model) renderer() string {
	switch {
	case m.chat != nil:
		return "jinja"
	case m.opts.EngineOnly || m.left != nil:
		return "engine"
	}
	return "none"
}
