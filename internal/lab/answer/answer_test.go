package answer

import (
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/lab/vocab"
)

func TestCheck(t *testing.T) {
	v := vocab.New()
	s := OfText("a prompt")
	text := string(Append(nil, v, s, 200))
	if text != strings.TrimSpace(text) || !strings.Contains(text, ". ") {
		t.Errorf("not prose: %q", text)
	}
	for n := range len(text) {
		if err := Check(v, s, text[:n]); err != nil {
			t.Fatal(err)
		}
		wrong := []byte(text)
		wrong[n] ^= 1
		if err := Check(v, s, string(wrong)); !errors.Is(err, ErrDiffers) {
			t.Fatalf("wrong byte %d not seen: %v", n, err)
		}
	}
	if ids := v.AppendTokens(nil, []byte(text), false); len(ids) < 200 {
		t.Errorf("200 words in %d tokens", len(ids))
	}
}

// TestSeeds: everything that should change the answer does.
func TestSeeds(t *testing.T) {
	chat := func(roles ...string) Seed {
		var m []vocab.Message
		for i := 0; i < len(roles); i += 2 {
			m = append(m, vocab.Message{Role: roles[i], Content: vocab.Content(roles[i+1])})
		}
		return OfChat(m)
	}
	seen := map[Seed]string{}
	for name, s := range map[string]Seed{
		"text":      OfText("x"),
		"seed":      OfText("x").With(1, 0),
		"choice":    OfText("x").With(0, 1),
		"both":      OfText("x").With(1, 1),
		"other":     OfText("y"),
		"tokens":    OfTokens([]uint32{1, 2}),
		"tokens2":   OfTokens([]uint32{2, 1}),
		"chat":      chat("user", "x"),
		"role":      chat("system", "x"),
		"two":       chat("user", "x", "user", ""),
		"cut":       chat("user", "x", "assistant", "y"),
		"cut other": chat("user", "xassistant", "assistant", "y"),
	} {
		if s.Length() < 16 || s.Length() > 399 {
			t.Errorf("%s: length %d", name, s.Length())
		}
		if was, ok := seen[s]; ok {
			t.Errorf("%s and %s have one seed", name, was)
		}
		seen[s] = name
	}
	if OfText("x").With(0, 0) != OfText("x") {
		t.Error("With(0, 0) changes the seed")
	}
}
