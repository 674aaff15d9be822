package parts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a TB that notes the message of Fatalf or Skipf and unwinds.
type recorder struct {
	message string
	skipped bool
}

type fatal struct{}

func (r *recorder) Helper()             {}
func (r *recorder) Cleanup(func())      {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	panic(fatal{})
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = true
	r.Fatalf(format, args...)
}

// fatalOf returns the fatal message of find, or "".
func fatalOf(find func(TB) string) (message string) {
	r := &recorder{}
	defer func() {
		if got := recover(); got != nil && got != (fatal{}) {
			panic(got)
		}
		message = r.message
	}()
	find(r)
	return ""
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestQuick checks that a quick run skips tests that need a part instead of failing them.
func TestQuick(t *testing.T) {
	t.Setenv(envQuick, "1")
	r := &recorder{}
	func() {
		defer func() { _ = recover() }()
		Envoy(r)
	}()
	if !r.skipped {
		t.Errorf("not skipped: %q", r.message)
	}
}

func TestMissingPartNamesItsCommand(t *testing.T) {
	t.Setenv(envQuick, "")
	cache := t.TempDir()
	t.Setenv("GRAPEVINE_CACHE", cache)
	t.Setenv("ENVOY", "")
	write(t, filepath.Join(cache, "models", "half", "tokenizer.json"), "{}", 0o644)
	write(t, filepath.Join(cache, "models", "empty", "tokenizer.json"), "", 0o644)
	model := func(name string) func(TB) string {
		return func(tb TB) string { return Model(tb, name) }
	}
	for name, tc := range map[string]struct {
		find func(TB) string
		path string
	}{
		"envoy":       {Envoy, "bin/envoy"},
		"python":      {Python, "venv/bin/python"},
		"model":       {model("qwen3"), "models/qwen3/tokenizer.json"},
		"half model":  {model("half"), "models/half/tokenizer_config.json"},
		"empty model": {model("empty"), "models/empty/tokenizer.json"},
	} {
		t.Run(name, func(t *testing.T) {
			got := fatalOf(tc.find)
			for _, want := range []string{"run `make setup`", filepath.Join(cache, tc.path)} {
				if !strings.Contains(got, want) {
					t.Errorf("message %q does not contain %q", got, want)
				}
			}
		})
	}
}

func TestEnvoyOverride(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GRAPEVINE_CACHE", dir)
	installed, own, plain := filepath.Join(dir, "bin", "envoy"), filepath.Join(dir, "own"), filepath.Join(dir, "plain")
	write(t, installed, "x", 0o755)
	write(t, own, "x", 0o755)
	write(t, plain, "x", 0o644)

	t.Setenv("ENVOY", "")
	if got := Envoy(t); got != installed {
		t.Errorf("without ENVOY: %s, want %s", got, installed)
	}
	t.Setenv("ENVOY", own)
	if got := Envoy(t); got != own {
		t.Errorf("with ENVOY: %s, want %s", got, own)
	}
	t.Setenv("ENVOY", plain)
	if got := fatalOf(Envoy); !strings.Contains(got, "not executable") {
		t.Errorf("ENVOY that is not executable: message %q", got)
	}
}

func TestCache(t *testing.T) {
	t.Setenv("GRAPEVINE_CACHE", "")
	t.Setenv("HOME", "/somewhere")
	if got, want := Cache(), "/somewhere/.cache/grapevine"; got != want {
		t.Errorf("Cache() = %s, want %s", got, want)
	}
	t.Setenv("HOME", "")
	if got := Cache(); !filepath.IsAbs(got) {
		t.Errorf("without HOME: Cache() = %s, want an absolute path", got)
	}
	t.Setenv("GRAPEVINE_CACHE", "relative")
	if got := Cache(); !filepath.IsAbs(got) || filepath.Base(got) != "relative" {
		t.Errorf("relative GRAPEVINE_CACHE: Cache() = %s", got)
	}
}

func TestScript(t *testing.T) {
	s := Start(t, "-c", `
import json, sys, time
print(time.tzname[0], *sys.argv[1:], flush=True)
for line in sys.stdin:
    print(json.dumps({"got": json.loads(line)}), flush=True)`, "a", "b")
	if got := s.Line(); got != "UTC a b" {
		t.Errorf("first line %q", got)
	}
	var answer struct{ Got []int }
	s.Ask([]int{1, 2}, &answer)
	if len(answer.Got) != 2 || answer.Got[1] != 2 {
		t.Errorf("answer %+v", answer)
	}
	s.Stop()
	s.Stop()
	ended := fatalOf(func(tb TB) string {
		s := Start(t, "-c", "")
		s.tb = tb
		return s.Line()
	})
	if !strings.Contains(ended, "gave no answer") {
		t.Errorf("a program that ended: message %q", ended)
	}
}

// TestInstalled runs the programs that `make setup` installed.
func TestInstalled(t *testing.T) {
	if out, err := exec.Command(Envoy(t), "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "version") {
		t.Errorf("envoy --version: %v: %s", err, out)
	}
	const script = `
import sys, zmq, msgpack, msgspec, jinja2, cbor2, xxhash, tokenizers
print(len(tokenizers.Tokenizer.from_file(sys.argv[1]).encode("hello world").ids))`
	for _, name := range []string{"qwen3", "qwen2_5", "llama3_1"} {
		out, err := exec.Command(Python(t), "-c", script, filepath.Join(Model(t, name), "tokenizer.json")).CombinedOutput()
		// Llama 3.1 begins with a start token, Qwen does not.
		want := map[string]string{"qwen3": "2", "qwen2_5": "2", "llama3_1": "3"}[name]
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: tokens of \"hello world\": %v: %s, want %s", name, err, out, want)
		}
	}
}
