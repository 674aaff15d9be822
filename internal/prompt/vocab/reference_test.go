package vocab

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// reference is a running reference tokenizer: Hugging Face's Rust library
// behind Python.
type reference struct{ *parts.Script }

func newReference(t testing.TB) *reference {
	t.Helper()
	return &reference{parts.Start(t, "testdata/reference.py")}
}

// encode returns the reference ids of texts.
func (r *reference) encode(file string, texts []string, special bool) [][]uint32 {
	var ids [][]uint32
	r.Ask(map[string]any{"cmd": "encode", "file": file, "texts": texts, "special": special}, &ids)
	return ids
}

var realModels = []string{"qwen3", "qwen2_5", "llama3_1"}

var loaded sync.Map // model name → *Vocab

// realModel loads one of the installed models once.
func realModel(t testing.TB, name string) (*Vocab, string) {
	t.Helper()
	file := filepath.Join(parts.Model(t, name), "tokenizer.json")
	if v, ok := loaded.Load(name); ok {
		return v.(*Vocab), file
	}
	v, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, v)
	return v, file
}
