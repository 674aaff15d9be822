package prompt

import (
	"sync"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

var realModels = []string{"qwen3", "qwen2_5", "llama3_1"}

var loaded sync.Map // model name → *Model

// realModel loads one of the installed models once.
func realModel(t testing.TB, name string) (*Model, string) {
	t.Helper()
	dir := parts.Model(t, name)
	if m, ok := loaded.Load(name); ok {
		return m.(*Model), dir
	}
	m, err := Load(dir, Options{Name: name, Now: func() time.Time { return time.Unix(0, 0).UTC() }})
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, m)
	return m, dir
}

// newReference starts a model server's front half, in Python.
func newReference(t testing.TB) *parts.Script {
	t.Helper()
	return parts.Start(t, "testdata/reference.py")
}

// answer is the reference's response to a request.
type answer struct {
	Out   string   `json:"out"`
	IDs   []uint32 `json:"ids"`
	Error string   `json:"error"`
}
