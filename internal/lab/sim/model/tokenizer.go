package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	files "github.com/grapevine-epp/grapevine/internal/prompt/vocab"
)

// ErrFiles is returned if a model's files cannot be used by an engine.
var ErrFiles = errors.New("model: unfit files")

// Tokenizer is the tokenizer of a real model's files.
type Tokenizer struct {
	vocab  *files.Vocab
	end    uint32
	render func(dst, body []byte) ([]byte, error)
}

// LoadTokenizer returns the tokenizer of the model in dir. Its chats are
// rendered by render, which appends the prompt of a chat completions body to
// dst.
func LoadTokenizer(dir string, render func(dst, body []byte) ([]byte, error)) (*Tokenizer, error) {
	path, err := files.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	v, err := files.Load(path, files.Options{})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if !v.CanEncode() {
		return nil, fmt.Errorf("%w: %s cannot encode: %q", ErrFiles, path, v.Notes())
	}
	end, err := endToken(dir)
	if err != nil {
		return nil, err
	}
	ids := v.Encode(nil, []byte(end))
	if len(ids) != 1 {
		return nil, fmt.Errorf("%w: the end token %q of %s is %d tokens", ErrFiles, end, dir, len(ids))
	}
	return &Tokenizer{v, ids[0], render}, nil
}

// endToken reads eos_token, a string or an object, from
// tokenizer_config.json.
func endToken(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	var config struct {
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("model: tokenizer_config.json of %s: %w", dir, err)
	}
	var text string
	if json.Unmarshal(config.EOS, &text) == nil {
		return text, nil
	}
	var token struct{ Content string }
	if err := json.Unmarshal(config.EOS, &token); err != nil {
		return "", fmt.Errorf("model: eos_token of %s: %w", dir, err)
	}
	return token.Content, nil
}

// AppendTokens implements sim.Tokenizer.
func (m *Tokenizer) AppendTokens(dst []uint32, text []byte, special bool) []uint32 {
	if !special {
		return m.vocab.Encode(dst, text)
	}
	dst = append(dst, m.vocab.BOS()...)
	return append(m.vocab.Encode(dst, text), m.vocab.EOS()...)
}

// AppendText implements sim.Tokenizer.
func (m *Tokenizer) AppendText(dst []byte, tokens []uint32) []byte {
	for _, id := range tokens {
		dst, _ = m.vocab.AppendToken(dst, id) // unknown ids have no text
	}
	return dst
}

// Render implements sim.Tokenizer.
func (m *Tokenizer) Render(dst, body []byte) ([]byte, error) { return m.render(dst, body) }

// End implements sim.Tokenizer.
func (m *Tokenizer) End() uint32 { return m.end }
