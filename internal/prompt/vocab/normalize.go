package vocab

import (
	"bytes"

	"golang.org/x/text/unicode/norm"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// step is one normalisation step.
type step struct {
	kind     stepKind
	form     norm.Form
	old, new string // prepend uses new only
	left     bool   // strip
	right    bool
}

type stepKind uint8

const (
	stepForm stepKind = iota
	stepPrepend
	stepReplace
	stepLower
	stepStrip
)

// prefixRule is when a space is put before a piece of text that has none.
type prefixRule uint8

const (
	prefixNever prefixRule = iota
	prefixFirst            // before the text's very beginning only
	prefixAlways
)

// normalizer transforms the text between added tokens before it is split.
type normalizer struct {
	steps  []step
	prefix prefixRule // a pre-tokenizer's dummy prefix
	spm    bool       // U+2581 is a space
}

// hardSpace reports whether a step replaces spaces by U+2581.
func (n *normalizer) hardSpace() bool {
	for _, s := range n.steps {
		if s.kind == stepReplace && s.old == " " && s.new == spmSpace {
			return true
		}
	}
	return false
}

// settled reports whether text would be unchanged. It may return false for unchanged text.
func (n *normalizer) settled(text []byte) bool {
	if n.prefix != prefixNever || n.spm {
		return false
	}
	for _, s := range n.steps {
		if s.kind != stepForm || s.form != norm.NFC {
			return false
		}
	}
	return len(n.steps) == 0 || split.IsStableNFC(text)
}

// apply returns text after the steps; the result aliases text or buf.
func (n *normalizer) apply(buf, text []byte) []byte {
	if len(text) == 0 || n.settled(text) && n.prefix == prefixNever {
		return text
	}
	for _, s := range n.steps {
		text = s.apply(text)
	}
	if n.spm {
		text = appendSPMSpaces(buf[:0], text)
	}
	return text
}

// needsPrefix reports whether a space is inserted before piece. first is true if the piece starts
// the whole text.
func (n *normalizer) needsPrefix(piece []byte, first bool) bool {
	if n.prefix == prefixNever || n.prefix == prefixFirst && !first {
		return false
	}
	return len(piece) > 0 && piece[0] != ' '
}

func (s *step) apply(text []byte) []byte {
	switch s.kind {
	case stepForm:
		if s.form == norm.NFC && split.IsStableNFC(text) || split.ASCII(text) {
			return text
		}
		return split.Normal(s.form, text)
	case stepPrepend:
		if len(text) == 0 {
			return text
		}
		return append([]byte(s.new), text...)
	case stepReplace:
		if s.old == "" || !bytes.Contains(text, []byte(s.old)) {
			return text
		}
		return bytes.ReplaceAll(text, []byte(s.old), []byte(s.new))
	case stepLower:
		return bytes.ToLower(text)
	case stepStrip:
		if s.left {
			text = text[leadingSpace(text, false):]
		}
		if s.right {
			text = text[:len(text)-trailingSpace(text, false)]
		}
	}
	return text
}
