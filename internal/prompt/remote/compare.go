package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// Finding is the result of comparing an engine's rendering of a fixed chat with the local one.
type Finding struct {
	Chat    string `json:"chat"`
	Route   Route  `json:"route,omitempty"` // route that the engine supported
	Equal   bool   `json:"equal"`
	Skipped string `json:"skipped,omitempty"` // why it was not compared

	// If the renderings differ: the first differing byte, counted from 0, both lengths, and an
	// excerpt of both. The excerpts contain only the fixed chat and the template.
	At         int    `json:"at"`
	Here       string `json:"here,omitempty"`
	There      string `json:"there,omitempty"`
	HereBytes  int    `json:"here_bytes,omitempty"`
	ThereBytes int    `json:"there_bytes,omitempty"`
	// Foreign is an engine's token that the local vocabulary does not have.
	Foreign *uint32 `json:"foreign,omitempty"`

	tools bool
}

// Complete reports whether both sides rendered the chat.
func (f *Finding) Complete() bool { return f.Skipped == "" }

// Tools reports whether the chat has tools.
func (f *Finding) Tools() bool { return f.tools }

// String describes the finding for logs and reports.
func (f *Finding) String() string {
	switch {
	case !f.Complete():
		return f.Chat + " was not compared: " + f.Skipped
	case f.Equal:
		return f.Chat + " is rendered there as it is here"
	case f.Foreign != nil:
		return fmt.Sprintf("%s holds the token %d there, which the vocabulary here does not have", f.Chat, *f.Foreign)
	}
	return fmt.Sprintf("%s is rendered there otherwise than here from byte %d on (%d bytes there, %d here): there %q, here %q", f.Chat, f.At, f.ThereBytes, f.HereBytes, f.There, f.Here)
}

// Compare requests an engine's rendering of a chat and compares it with the model's. It returns an
// error if the engine cannot be queried now.
func Compare(ctx context.Context, e *Engine, m *prompt.Model, name string, c Chat) (Finding, error) {
	f := Finding{Chat: c.Name, tools: c.Tools}
	// The two sides may have rendered a template that prints the date on different days, so a
	// difference is checked a second time.
	for attempt := 0; ; attempt++ {
		ids, route, err := e.Tokens(ctx, name, c)
		f.Route = route
		switch {
		case errors.Is(err, ErrNoRoute):
			f.Skipped = "the engine has no route that tells its prompts"
			return f, nil
		case errors.Is(err, ErrRefused):
			f.Skipped = "the engine refuses it"
			return f, nil
		case err != nil:
			return f, err
		}
		here, info, err := m.RenderAs(ctx, nil, c.Body(name), prompt.KindChat, e.As)
		if err != nil {
			f.Skipped = "it is not rendered here: " + err.Error()
			return f, nil
		}
		if e.As.Unknown(info.Facts) {
			f.Skipped = "it is not known how engines of this kind and version render it"
			return f, nil
		}
		if f.set(m, here, ids); f.Equal || attempt == 1 {
			return f, nil
		}
	}
}

// set compares the local rendering with an engine's tokens.
func (f *Finding) set(m *prompt.Model, here []byte, ids []uint32) {
	there := make([]byte, 0, len(here))
	f.Foreign = nil
	for i := range ids {
		var ok bool
		if there, ok = m.AppendToken(there, ids[i]); !ok {
			f.Foreign = &ids[i]
			break
		}
	}
	if f.Equal = f.Foreign == nil && bytes.Equal(here, there); f.Equal {
		return
	}
	f.At = 0
	for f.At < min(len(here), len(there)) && here[f.At] == there[f.At] {
		f.At++
	}
	f.HereBytes, f.ThereBytes = len(here), len(there)
	f.Here, f.There = around(here, f.At), around(there, f.At)
}

// Lengths of the excerpts around the first differing byte.
const (
	showBefore = 24
	showAfter  = 48
)

// around returns the text around a byte, cut at character boundaries.
func around(text []byte, at int) string {
	from, to := max(at-showBefore, 0), min(at+showAfter, len(text))
	for from < at && !utf8.RuneStart(text[from]) {
		from++
	}
	for to > at && to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	return string(text[from:to])
}
