package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/model"
	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

func load(t *testing.T, dir string) Tokenizer {
	t.Helper()
	tok, err := model.LoadTokenizer(dir, vocab.New().Render) // ChatML, as Qwen has it
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestWrittenModel: who reads the files of the built-in vocabulary gets the
// same tokens.
func TestWrittenModel(t *testing.T) {
	own := vocab.New()
	dir := t.TempDir()
	if err := own.WriteModel(dir); err != nil {
		t.Fatal(err)
	}
	read := load(t, dir)
	if read.End() != own.End() {
		t.Errorf("end token %d, want %d", read.End(), own.End())
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom(own.Words()), rapid.SampledFrom([]string{" ", "\n", "<|im_end|>", "'s", "é", "中", ".", "1"}), rapid.String(),
		)).Draw(t, "pieces"), rapid.SampledFrom([]string{"", " "}).Draw(t, "glue"))
		want := own.AppendTokens(nil, []byte(text), false)
		if got := read.AppendTokens(nil, []byte(text), false); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}

// TestRealModel: an engine with a real vocabulary answers and caches alike.
func TestRealModel(t *testing.T) {
	tok := load(t, parts.Model(t, "qwen3"))
	e := open(t, fast(Options{Tokenizer: tok}))
	messages := []vocab.Message{{Role: "user", Content: vocab.Content(strings.Repeat("Explain the café's 中文 menu, 123 times. ", 20))}}
	var before int
	for turn := range 3 {
		raw, err := json.Marshal(map[string]any{"messages": messages, "max_tokens": 60, "ignore_eos": true})
		if err != nil {
			t.Fatal(err)
		}
		var b body
		do(t, e, "POST", "/v1/chat/completions", string(raw)).decoded(t, 200, &b)
		said := b.Choices[0].Message.Content
		if err := answer.Check(e.words, answer.OfChat(messages), said); err != nil {
			t.Error(err)
		}
		if got := b.Usage.Details.CachedTokens; got != before/16*16 {
			t.Errorf("turn %d: %d tokens cached, want %d", turn, got, before/16*16)
		}
		before = b.Usage.TotalTokens - 1
		messages = append(messages, vocab.Message{Role: "assistant", Content: vocab.Content(said)}, vocab.Message{Role: "user", Content: "go on"})
	}
}

func TestLoadTokenizerFails(t *testing.T) {
	own := vocab.New()
	for name, config := range map[string]string{"no config": "", "broken": "{", "no end": "{}", "two tokens": `{"eos_token":"the end"}`} {
		dir := t.TempDir()
		if err := own.WriteModel(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "tokenizer_config.json")
		err := os.Remove(path)
		if config != "" {
			err = errors.Join(err, os.WriteFile(path, []byte(config), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.LoadTokenizer(dir, own.Render); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := model.LoadTokenizer(t.TempDir(), own.Render); err == nil {
		t.Error("empty folder: no error")
	}
}

// TestNonCanonical checks that a response with non-canonical tokens has the same text, and that the
// next turn misses the cache from the first such token on.
func TestNonCanonical(t *testing.T) {
	e := open(t, fast(Options{NonCanonical: 0.2}))
	var b body
	do(t, e, "POST", "/v1/completions", `{"prompt":"the","max_tokens":200,"ignore_eos":true,"return_token_ids":true}`).decoded(t, 200, &b)
	c := b.Choices[0]
	if err := answer.Check(e.words, answer.OfText("the"), c.Text); err != nil || len(c.TokenIDs) != 200 {
		t.Fatalf("%v, %d tokens", err, len(c.TokenIDs))
	}
	canonical := e.words.AppendTokens(nil, []byte(c.Text), false)
	same := 0
	for same < len(canonical) && canonical[same] == c.TokenIDs[same] {
		same++
	}
	if same > 60 || len(canonical) >= 190 {
		t.Errorf("%d of %d tokens are canonical", same, len(canonical))
	}
	next := fmt.Sprintf(`{"prompt":%q,"max_tokens":1}`, "the"+c.Text)
	do(t, e, "POST", "/v1/completions", next).decoded(t, 200, &b)
	prompt := len(e.words.AppendTokens(nil, []byte("the"), true))
	if want := (prompt + same) / 16 * 16; b.Usage.Details.CachedTokens != want {
		t.Errorf("%d tokens cached, want %d", b.Usage.Details.CachedTokens, want)
	}
}
