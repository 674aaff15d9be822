package main

import (
	"fmt"
	"os"
	"strings"
)

const defaultEquivalent = "internal/testkit/mutants/equivalent.txt"

// key identifies a mutation independently of line numbers.
func (s *site) key() string { return s.file + "\n" + s.kind + "\n" + s.excerpt() }

// readEquivalent reads the random mutations that no test can catch, by key, with the reason of each.
// A block has the file after "==", the kind of mutation, the source line and the reason.
func readEquivalent(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i, block := range strings.Split("\n"+string(text), "\n== ") {
		if i == 0 {
			continue // the text before the first block
		}
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if len(lines) < 4 {
			return nil, fmt.Errorf("%s: %q: want file, kind, source line and reason", path, block)
		}
		all[strings.Join(lines[:3], "\n")] = strings.Join(lines[3:], " ")
	}
	return all, nil
}
