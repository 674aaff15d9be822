package vocab

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/parts"
)

// reference is a running reference tokenizer: Hugging Face's Rust library
// behind Python.
type reference struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
}

func newReference(t testing.TB) *reference {
	t.Helper()
	cmd := exec.Command(parts.Python(t), filepath.Join("testdata", "reference.py"))
	cmd.Stderr = testWriter{t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &reference{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("python: %s", p)
	return len(p), nil
}

func (r *reference) ask(req, answer any) {
	r.t.Helper()
	data, err := json.Marshal(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.in.Write(append(data, '\n')); err != nil {
		r.t.Fatal(err)
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("the reference tokenizer gave no answer: %v", err)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		r.t.Fatal(err)
	}
}

// encode returns the reference ids of texts.
func (r *reference) encode(file string, texts []string, special bool) [][]uint32 {
	r.t.Helper()
	var ids [][]uint32
	r.ask(map[string]any{"cmd": "encode", "file": file, "texts": texts, "special": special}, &ids)
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
