package server

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
)

// engineKey is the API key for this replica's own requests to engines. Client requests carry their
// own.
type engineKey struct{ key atomic.Pointer[string] }

// ReadEngineKey reads a key from a file; "" means no key. The key is the first line.
func ReadEngineKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("key of the engines: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	line = bytes.TrimSpace(line)
	if len(line) == 0 || bytes.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("engine key file %s: first line is not a valid key", file)
	}
	return string(line), nil
}

// read reloads the file, if one is configured.
func (k *engineKey) read(file string) error {
	key, err := ReadEngineKey(file)
	if err == nil {
		k.key.Store(&key)
	}
	return err
}

func (k *engineKey) get() string { return *k.key.Load() }
