package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	files "github.com/grapevine-epp/grapevine/internal/prompt/vocab"
)

// modelFiles is the Tokenizer of a real model's files.
type modelFiles struct {
	vocab  *files.Vocab
	end    uint32
	render func(dst, body []byte) ([]byte, error)
}

// LoadTokenizer returns the tokenizer of the model in dir. Its chats are
// rendered by render, which appends the prompt of a chat completions body to
// dst.
func LoadTokenizer(dir string, render func(dst, body []byte) ([]byte, error)) (Tokenizer, error) {
	path, err := files.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	v, err := files.Load(path, files.Options{})
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if !v.CanEncode() {
		return nil, fmt.Errorf("%w: %s cannot encode: %q", ErrOptions, path, v.Notes())
	}
	end, err := endToken(dir)
	if err != nil {
		return nil, err
	}
	ids := v.Encode(nil, []byte(end))
	if len(ids) != 1 {
		return nil, fmt.Errorf("%w: the end token %q of %s is %d tokens", ErrOptions, end, dir, len(ids))
	}
	return &modelFiles{v, ids[0], render}, nil
}

// endToken reads eos_token, a string or an object, from
// tokenizer_config.json.
func endToken(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return "", fmt.Errorf("sim: %w", err)
	}
	var config struct {
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("sim: tokenizer_config.json of %s: %w", dir, err)
	}
	var text string
	if json.Unmarshal(config.EOS, &text) == nil {
		return text, nil
	}
	var token struct{ Content string }
	if err := json.Unmarshal(config.EOS, &token); err != nil {
		return "", fmt.Errorf("sim: eos_token of %s: %w", dir, err)
	}
	return token.Content, nil
}

// AppendTokens implements Tokenizer.
func (m *modelFiles) AppendTokens(dst []uint32, text []byte, special bool) []uint32 {
	if !special {
		return m.vocab.Encode(dst, text)
	}
	dst = append(dst, m.vocab.BOS()...)
	return append(m.vocab.Encode(dst, text), m.vocab.EOS()...)
}

// AppendText implements Tokenizer.
func (m *modelFiles) AppendText(dst []byte, tokens []uint32) []byte {
	for _, id := range tokens {
		dst, _ = m.vocab.AppendToken(dst, id) // unknown ids say nothing
	}
	return dst
}

// Render implements Tokenizer.
func (m *modelFiles) Render(dst, body []byte) ([]byte, error) { return m.render(dst, body) }

// End implements Tokenizer.
func (m *modelFiles) End() uint32 { return m.end }
