package parts

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
)

// TB is the subset of testing.TB that this package uses. It lets programs use the package without
// importing testing.
type TB interface {
	Helper()
	Cleanup(f func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Environment variables that internal/setup/setup.sh reads too.
const (
	envCache = "GRAPEVINE_CACHE"
	envEnvoy = "ENVOY"
	envQuick = "GRAPEVINE_QUICK" // set by `make check` and by tests with mutations
)

// Full marks a test that needs external parts, other programs or much time. `make test` runs all
// tests; `make check` sets GRAPEVINE_QUICK, which skips these tests.
func Full(tb TB) {
	tb.Helper()
	if os.Getenv(envQuick) != "" {
		tb.Skipf("left to `make test`")
	}
}

// Cache returns the folder that `make setup` fills: $GRAPEVINE_CACHE, or
// .cache/grapevine in the user's home folder. It is an absolute path, or a
// relative one where neither the variable nor a home folder exists.
func Cache() string {
	if dir := os.Getenv(envCache); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	return filepath.Join(home(), ".cache", "grapevine")
}

// home returns the home directory as setup.sh does: $HOME, or the entry of the user database if
// unset.
func home() string {
	if dir := os.Getenv("HOME"); dir != "" {
		return dir
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// EnvoyPath returns the path of an Envoy binary, preferring $ENVOY to the installed one. If there
// is none, the error describes how to install it. It is for programs; tests call Envoy.
func EnvoyPath() (string, error) {
	if path := os.Getenv(envEnvoy); path != "" {
		return executable(path, "set "+envEnvoy+" to an Envoy binary, or unset it and run `make setup`")
	}
	return executable(filepath.Join(Cache(), "bin", "envoy"), "run `make setup`, or set "+envEnvoy+" to an Envoy binary")
}

// Envoy returns the path of an Envoy binary and ends the test if there is none.
func Envoy(tb TB) string {
	tb.Helper()
	return must(tb, "Envoy", EnvoyPath)
}

// Browser returns the path of a headless Chromium and ends the test if there is none.
func Browser(tb TB) string {
	tb.Helper()
	return must(tb, "browser", func() (string, error) {
		return executable(filepath.Join(Cache(), "browser", "bin", "chromium"), "run `internal/setup/setup.sh browser`")
	})
}

// Python returns the path of a Python interpreter that has pyzmq, msgpack, msgspec, tokenizers,
// jinja2, cbor2 and xxhash, and ends the test if there is none.
func Python(tb TB) string {
	tb.Helper()
	return must(tb, "Python", func() (string, error) {
		return executable(filepath.Join(Cache(), "venv", "bin", "python"), "run `make setup`")
	})
}

// AssemblyScript returns the path of the AssemblyScript compiler, a program of Node.js, and ends the test
// if there is none.
func AssemblyScript(tb TB) string {
	tb.Helper()
	return must(tb, "AssemblyScript", func() (string, error) {
		return executable(filepath.Join(Cache(), "assemblyscript", "node_modules", ".bin", "asc"), "run `make setup`")
	})
}

// Model returns the folder with the tokenizer.json and tokenizer_config.json of the model name
// (qwen3, qwen2_5 or llama3_1) and ends the test if there is none.
func Model(tb TB, name string) string {
	tb.Helper()
	return must(tb, "model "+name, func() (string, error) {
		dir := filepath.Join(Cache(), "models", name)
		for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
			if err := regular(filepath.Join(dir, file)); err != nil {
				return "", fmt.Errorf("%w: run `make setup`", err)
			}
		}
		return dir, nil
	})
}

func must(tb TB, what string, find func() (string, error)) string {
	tb.Helper()
	Full(tb)
	path, err := find()
	if err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
	return path
}

func executable(path, hint string) (string, error) {
	if err := regular(path); err != nil {
		return "", fmt.Errorf("%w: %s", err, hint)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 == 0 {
		return "", fmt.Errorf("%s is not executable: %s", path, hint)
	}
	return path, nil
}

// regular returns an error unless path leads to a regular file with content.
func regular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return fmt.Errorf("%s is not a file with content", path)
	}
	return nil
}
