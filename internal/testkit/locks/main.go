package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

//go:embed accepted.txt
var acceptedText string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	patterns := []string{"./..."}
	if len(args) > 0 {
		patterns = args
	}
	findings, err := analyze(".", patterns)
	if err != nil {
		return err
	}
	list, err := parseAccepted(acceptedText)
	if err != nil {
		return err
	}
	var errs []error
	accepted := 0
	matched := map[string]bool{}
	for _, f := range findings {
		everywhere := fmt.Sprintf("*: %s in %s", f.sink, f.in)
		_, one := list[f.key()]
		if _, all := list[everywhere]; one || all {
			accepted++
			matched[f.key()], matched[everywhere] = true, true
			continue
		}
		errs = append(errs, fmt.Errorf("%s\n\t%s\n\tat %s\n\tby %s", f.key(), f.kind, f.pos, strings.Join(f.chain, " -> ")))
	}
	if len(args) == 0 {
		for _, key := range slices.Sorted(keysOf(list)) {
			if !matched[key] {
				errs = append(errs, fmt.Errorf("accepted.txt: no finding matches %q: remove it", key))
			}
		}
	}
	fmt.Printf("%d findings, %d of them accepted\n", len(findings), accepted)
	if len(errs) > 0 {
		return errors.Join(append(errs, fmt.Errorf("%d problems: move the call out of the lock, or list it in accepted.txt with a reason", len(errs)))...)
	}
	return nil
}

func keysOf(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// parseAccepted reads lines of a key, "#" and the reason, which is required. A key is
// "mutex: sink in function"; "*" stands for every mutex, and "request" for the path of a
// request.
func parseAccepted(text string) (map[string]string, error) {
	list := map[string]string{}
	in := bufio.NewScanner(strings.NewReader(text))
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, _ := strings.Cut(line, "#")
		key, reason = strings.TrimSpace(key), strings.TrimSpace(reason)
		if reason == "" {
			return nil, fmt.Errorf("accepted.txt:%d: %q has no reason", n, key)
		}
		if _, twice := list[key]; twice {
			return nil, fmt.Errorf("accepted.txt:%d: %q is listed twice", n, key)
		}
		list[key] = reason
	}
	return list, in.Err()
}
