package vocab

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/prompt/vocab/split"
)

// trainedCase is a small vocabulary that the reference trains for the test.
type trainedCase struct {
	name     string
	kind     string
	patterns []string
	form     string
	added    []map[string]any
}

var flagTokens = []map[string]any{
	{"content": "<left>", "lstrip": true, "special": true},
	{"content": "<right>", "rstrip": true, "special": true},
	{"content": "<both>", "lstrip": true, "rstrip": true},
	{"content": "word", "single_word": true},
	{"content": "Norm é", "normalized": true},
	{"content": "<n>", "normalized": true, "lstrip": true},
	{"content": "§"}, {"content": "<left><right>"}, {"content": "a b"},
}

var trainedCases = []trainedCase{
	{name: "gpt2", kind: "bytes"},
	{name: "gpt2 prefix", kind: "bytes-prefix", added: flagTokens},
	{name: "cl100k", kind: "bytes", patterns: []string{split.CL100K}, added: flagTokens},
	{name: "qwen2 nfc", kind: "bytes", patterns: []string{split.Qwen2}, form: "NFC", added: flagTokens},
	{name: "qwen3.5 nfkc", kind: "bytes", patterns: []string{split.Qwen35}, form: "NFKC"},
	{name: "o200k", kind: "bytes", patterns: []string{split.O200K}},
	{name: "tekken split", kind: "bytes", patterns: []string{split.Tekken}},
	{name: "deepseek", kind: "bytes", patterns: []string{split.DeepSeek1, split.DeepSeek2, split.DeepSeek3}},
	{name: "spm prepend", kind: "spm-prepend", added: flagTokens},
	{name: "spm replace", kind: "spm-replace", added: flagTokens},
	{name: "metaspace first", kind: "spm-first-whole", added: flagTokens},
	{name: "metaspace always", kind: "spm-always-whole", added: flagTokens},
	{name: "metaspace never split", kind: "spm-never-split", added: flagTokens},
	{name: "metaspace always split", kind: "spm-always-split"},
}

// TestEncodeTrained covers features that the three real models lack: every supported split pattern,
// the flags of added tokens, SentencePiece styles.
func TestEncodeTrained(t *testing.T) {
	ref := newReference(t)
	var corpus []string
	for _, s := range hardStrings(7, 300, 12) {
		// A merged token must not look like a byte token.
		corpus = append(corpus, strings.ReplaceAll(s, "<0x", "<x"))
	}
	texts := append(hardStrings(8, 500, 8), randomRunes(3, 50, 30)...)
	for _, s := range []string{"<left>", " <left> ", "a  <right>  b", "x \n<both>\t y", "word", " word.", "words", "sword", "Norm é", "Norm e\u0301",
		" <n>  x", "§§", "<left><right> z", "a ba b", " ", "  x", "x  ", "\u2581\u2581", "<s>", "<unk> ", ""} {
		texts = append(texts, s, "q "+s+" r")
	}
	dir := t.TempDir()
	for _, c := range trainedCases {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, c.name+".json")
			req := map[string]any{"cmd": "train", "kind": c.kind, "patterns": c.patterns, "form": c.form, "added": c.added, "file": file, "texts": corpus, "size": 900}
			var size int
			ref.Ask(req, &size)
			v, err := Load(file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !v.CanEncode() {
				t.Fatalf("no encoding: %v", v.Notes())
			}
			if v.Size() != size {
				t.Errorf("%d tokens, want %d", v.Size(), size)
			}
			if bos := v.BOS(); len(bos) != 1 || string(v.token(bos[0])) != "<s>" {
				t.Errorf("BOS is %v", bos)
			}
			bad := diff(t, v, texts, ref.encode(file, texts, false))
			t.Logf("%s: %d of %d texts differ", v.pat.Name(), bad, len(texts))
			checkBoundaries(t, v, texts)
			checkWindows(t, v, texts)
		})
	}
}
