package vocab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

type reference struct {
	IDs     [][]uint32 `json:"ids"`
	Decoded []string   `json:"decoded"`
	Prompts []string   `json:"prompts"`
}

func askReference(t *testing.T, v *Vocabulary, texts []string, chats []json.RawMessage) (r reference) {
	t.Helper()
	dir := t.TempDir()
	if err := v.WriteModel(dir); err != nil {
		t.Fatal(err)
	}
	job, err := json.Marshal(map[string]any{"dir": dir, "texts": texts, "chats": chats})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(parts.Python(t), "testdata/reference.py")
	cmd.Stdin = bytes.NewReader(job)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference: %v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// hardTexts mixes words of the vocabulary with punctuation and other separators.
func hardTexts(v *Vocabulary, n int) []string {
	rng := rand.New(rand.NewPCG(7, 7))
	pieces := []string{
		" ", "  ", "\n", " \n ", "\r\n", "\t", "'s", "'S", "'re ", "1", "234", ".", ", ", "!?", "(", "é", " é", "ß", "中文", " 中",
		"\u00a0", "\u2003", "\u0301", "🙂", " 🙂", "the", "The", " The", " xyz", "'", "\"", "<", "<|", "<|im_end|>", " <|im_start|>",
		"<|endoftext|>", "<|im_end", "_", " _", "a", " a", "\x00", "\u200b",
	}
	texts := []string{"", " ", "the engine", " the engine"}
	for range n {
		var b strings.Builder
		for range 1 + rng.IntN(30) {
			if rng.IntN(2) == 0 {
				b.WriteString(" " + v.words[rng.IntN(len(v.words))])
			} else {
				b.WriteString(pieces[rng.IntN(len(pieces))])
			}
		}
		texts = append(texts, b.String())
	}
	return texts
}

// TestReference compares with the reference tokenizer and template engine,
// reading the files that WriteModel writes.
func TestReference(t *testing.T) {
	v := New()
	texts := hardTexts(v, 2000)
	chats := []json.RawMessage{
		json.RawMessage(`{"messages":[{"role":"user","content":"hello"}]}`),
		json.RawMessage(`{"messages":[{"role":"system","content":" be \n brief\n"},{"role":"user","content":"hi\n"},{"role":"assistant","content":null},{"role":"user","content":""}]}`),
		json.RawMessage(`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"add_generation_prompt":false}`),
	}
	want := askReference(t, v, texts, chats)
	for i, text := range texts {
		got := v.AppendTokens(nil, []byte(text), true)
		if !slices.Equal(got, want.IDs[i]) {
			t.Errorf("%q:\n got %v\nwant %v", text, got, want.IDs[i])
		}
		if decoded := string(v.AppendText(nil, got)); decoded != want.Decoded[i] {
			t.Errorf("%q decodes to %q, want %q", text, decoded, want.Decoded[i])
		}
	}
	for i, chat := range chats {
		got, err := v.Render(nil, chat)
		if err != nil || string(got) != want.Prompts[i] {
			t.Errorf("chat %d: %q, %v, want %q", i, got, err, want.Prompts[i])
		}
	}
}

func TestRoundTrip(t *testing.T) {
	v := New()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		text = append(text, rapid.String().Draw(t, "text")...)
		if got := v.AppendText(nil, v.AppendTokens(nil, text, false)); !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestWordsAreTokens: each word of an engine's answer is one token.
func TestWordsAreTokens(t *testing.T) {
	v := New()
	for _, w := range v.Words() {
		if ids := v.AppendTokens(nil, []byte(" "+w), false); len(ids) != 1 {
			t.Errorf("%q is %v", w, ids)
		}
	}
	if len(v.Words()) < 300 {
		t.Errorf("%d words", len(v.Words()))
	}
}

func TestRender(t *testing.T) {
	v := New()
	for _, c := range []struct{ name, body, want string }{
		{"parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			"<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"},
		{"continued", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"so"}],"continue_final_message":true,"add_generation_prompt":false}`,
			"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nso"},
		{"image", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, ""},
		{"number", `{"messages":[{"role":"user","content":3}]}`, ""},
		{"nothing", `{}`, ""},
		{"broken", `{`, ""},
		{"both", `{"messages":[{"role":"user","content":"q"}],"continue_final_message":true,"add_generation_prompt":true}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := v.Render(nil, []byte(c.body))
			if c.want == "" {
				if !errors.Is(err, ErrChat) {
					t.Fatalf("%q, %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(c.want, string(got)); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func BenchmarkAppendTokens(b *testing.B) {
	v := New()
	text := []byte(strings.Repeat(" the engine keeps every block of the prompt.", 1000))
	b.SetBytes(int64(len(text)))
	var dst []uint32
	for b.Loop() {
		dst = v.AppendTokens(dst[:0], text, false)
	}
}

func ExampleVocabulary_AppendTokens() {
	v := New()
	ids := v.AppendTokens(nil, []byte("Hi the engine"), false)
	fmt.Println(len(ids), string(v.AppendText(nil, ids[2:])))
	// Output: 4  the engine
}
