package prompt

import (
	"fmt"

	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
)

// template is one chat template.
type template struct {
	*jinja.Template
	parts     bool // contents are lists of parts
	developer bool // the template knows the role developer
}

// newTemplate parses a chat template. The error wraps [jinja.ErrUnsupported] and
// names the construct when the template uses one that package jinja leaves out.
func newTemplate(source string, format ContentFormat) (*template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("prompt: chat template: %w", err)
	}
	return &template{
		Template:  parsed,
		parts:     format == ContentParts || format == ContentAuto && parsed.IteratesContent(),
		developer: parsed.Mentions("developer"),
	}, nil
}

// renderer names what renders the chats of a model, for status pages.
func (m *Model) renderer() string {
	switch {
	case m.chat != nil:
		return "jinja"
	case m.opts.EngineOnly || m.left != nil:
		return "engine"
	}
	return "none"
}
