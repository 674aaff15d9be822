//go:build engines

package engines

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// tokenizers runs spaces.py with the engine's libraries.
func tokenizers(t *testing.T, in []byte, args ...string) []byte {
	t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", "spaces.py"))
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), part(t, "venv", "bin", "python"), append([]string{script}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = t.TempDir(), bytes.NewReader(in), &stderr
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "TRANSFORMERS_VERBOSITY=error")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, tail(stderr.String()))
	}
	return out
}

// spaced are texts whose tokens depend on the handling of spaces.
var spaced = []string{
	"hello world", " hello", "  hello", "", " ", "\nhello", "hello</s>hello", "hello</s> hello", "hello </s>hello", "</s>hello", "</s> hello", "</s></s>hello",
	"<s>[INST] <<SYS>>\nhello\n<</SYS>>\n\nthe cat [/INST] is a naïve </s><s>[INST] 文 [/INST]", "<s> [INST] hello", "[INST] hello [/INST]", "a  b\u2581c", "<unk>x<unk> y",
}

// TestLlamaTokenizers compares the tokens of a Llama 2 folder with the tokens of the engine's
// libraries, for all settings of tokenizer_config.json, and checks that the tokens decode to the
// text.
func TestLlamaTokenizers(t *testing.T) {
	cases := []struct{ model, conf string }{
		{"llama", `"tokenizer_class":"LlamaTokenizer","legacy":false`}, // Llama 2
		{"llama", `"tokenizer_class":"LlamaTokenizer"`},
		{"llama", `"tokenizer_class":"LlamaTokenizerFast","legacy":true`},
		{"llama", `"tokenizer_class":"LlamaTokenizer","legacy":null`},
		{"llama", `"tokenizer_class":"LlamaTokenizer","legacy":true,"add_prefix_space":false`},
		{"llama", `"tokenizer_class":"LlamaTokenizer","add_prefix_space":null`},
		{"llama", `"tokenizer_class":"CodeLlamaTokenizer","legacy":true`},
		{"llama", `"tokenizer_class":"PreTrainedTokenizerFast"`},
		{"mistral", `"tokenizer_class":"LlamaTokenizer","legacy":false`}, // as in the published file
		{"mixtral", `"tokenizer_class":"LlamaTokenizerFast"`},
		{"phi3", `"tokenizer_class":"LlamaTokenizer","legacy":false`},
	}
	trained := t.TempDir()
	tokenizers(t, nil, trained)
	file, err := os.ReadFile(filepath.Join(trained, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, c := range cases {
		dir := t.TempDir()
		dirs = append(dirs, dir)
		for name, data := range map[string]string{
			"tokenizer.json":        string(file),
			"config.json":           `{"model_type":"` + c.model + `"}`,
			"tokenizer_config.json": `{"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>",` + c.conf + `}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	texts, err := json.Marshal(spaced)
	if err != nil {
		t.Fatal(err)
	}
	var want [][][]uint32
	if err := json.Unmarshal(tokenizers(t, texts, dirs...), &want); err != nil {
		t.Fatal(err)
	}
	for n, c := range cases {
		m, err := prompt.Load(dirs[n], prompt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range spaced {
			want := want[n][i]
			if got := m.Encode(nil, []byte(text)); !slices.Equal(got, want) {
				t.Errorf("%s %s: %q: %v, the engine has %v; notes %q", c.model, c.conf, text, got, want, m.Notes())
			}
			spelled, _ := m.AppendTokens(nil, want)
			if again := m.EncodeRendered(nil, spelled); !slices.Equal(again, want) {
				t.Errorf("%s %s: %q: %q makes %v, not %v", c.model, c.conf, text, spelled, again, want)
			}
		}
	}
}
