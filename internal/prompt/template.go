package prompt

import (
	"errors"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt/gonja"
	"github.com/grapevine-epp/grapevine/internal/prompt/jinja"
)

// template is one chat template.
type template struct {
	fast *jinja.Template
	slow *gonja.Template // set where fast is nil

	parts     bool // contents are lists of parts
	developer bool // the template knows the role developer
}

// newTemplate parses a chat template: by package jinja, or by gonja when it
// holds what jinja does not have.
func newTemplate(source string, format ContentFormat) (*template, error) {
	t := &template{parts: format == ContentParts}
	fast, err := jinja.Parse(source)
	switch {
	case err == nil:
		t.fast = fast
		t.developer = fast.Mentions("developer")
		if format == ContentAuto {
			t.parts = fast.IteratesContent()
		}
	case errors.Is(err, jinja.ErrUnsupported):
		slow, slowErr := gonja.Parse(source)
		if slowErr != nil {
			return nil, fmt.Errorf("prompt: chat template: %w; by gonja: %w", err, slowErr)
		}
		t.slow = slow
		t.developer = slow.Mentions("developer")
	default:
		return nil, fmt.Errorf("prompt: chat template: %w", err)
	}
	return t, nil
}

// render appends the template's output.
func (t *template) render(dst []byte, vars []jinja.Var, now time.Time) ([]byte, error) {
	if t.fast == nil {
		return t.slow.Render(dst, vars, now)
	}
	return t.fast.Render(dst, vars, jinja.Options{Now: now})
}

// renderer names the engine behind a template, for status pages.
func (t *template) renderer() string {
	if t == nil {
		return "none"
	}
	if t.fast == nil {
		return "gonja"
	}
	return "jinja"
}
