package prompt

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
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

// reference is a running model server's front half, in Python.
type reference struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
}

func newReference(t testing.TB) *reference {
	t.Helper()
	cmd := exec.Command(parts.Python(t), filepath.Join("testdata", "reference.py"))
	cmd.Env = append(cmd.Environ(), "TZ=UTC")
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

// answer is what the reference makes of a request.
type answer struct {
	Out   string   `json:"out"`
	IDs   []uint32 `json:"ids"`
	Error string   `json:"error"`
}

func (r *reference) ask(req map[string]any) answer {
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
		r.t.Fatalf("the reference gave no answer: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}
