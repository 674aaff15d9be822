package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Random mutations are compiled together. Each is behind a switch, so that one test binary serves all
// of them: the environment variable envActive has the number of the mutation that is made.

const (
	envActive = "GRAPEVINE_MUTATION"       // number of the mutation; none: the program is unchanged
	envTrace  = "GRAPEVINE_MUTATION_TRACE" // file with a byte for each mutation, set to 1 when a test reaches it
)

// switches is the file that every mutated package gets. The trace is a mapped file, so that it is
// complete however the process ends.
const switches = `package %s

import (
	"os"
	"strconv"
	"syscall"
)

var mutationActive, mutationTrace = openMutations()

func openMutations() (int, []byte) {
	active, err := strconv.Atoi(os.Getenv("` + envActive + `"))
	if err != nil {
		active = -1
	}
	f, err := os.OpenFile(os.Getenv("` + envTrace + `"), os.O_RDWR, 0)
	if err != nil {
		return active, nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return active, nil
	}
	trace, _ := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return active, trace
}

func mutated(n int) bool {
	if n < len(mutationTrace) {
		mutationTrace[n] = 1
	}
	return n == mutationActive
}

func mutatedCopy[T any](n int, v T) T {
	if mutated(n) {
		var zero T
		return zero
	}
	return v
}

func mutatedKeep[T any](n int, v, old T) T {
	if mutated(n) {
		return old
	}
	return v
}

type mutableNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutatedAdd[T mutableNumber](n int, a, b T) T {
	if mutated(n) {
		return a - b
	}
	return a + b
}

func mutatedSub[T mutableNumber](n int, a, b T) T {
	if mutated(n) {
		return a + b
	}
	return a - b
}
`

// edit replaces the bytes from start to end of a file. Insertions have start == end.
type edit struct {
	start, end int
	text       string
	closes     bool // inserted behind an expression: inner ones come first
}

// instrument returns a source file in which every site is behind the switch with its number.
func instrument(source []byte, list []*site, number map[*site]int) []byte {
	var edits, closing []edit
	for _, s := range list {
		for _, e := range s.edits {
			e.text = strings.ReplaceAll(e.text, "#", strconv.Itoa(number[s]))
			if e.closes {
				closing = append(closing, e)
			} else {
				edits = append(edits, e)
			}
		}
	}
	slices.Reverse(closing) // sites are in the order of their starts, outer ones first
	all := append(closing, edits...)
	slices.SortStableFunc(all, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range all {
		out.Write(source[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(source[at:])
	return out.Bytes()
}

// overlay writes the instrumented files of a package below dir, and an overlay for the compiler. It returns
// the text of each file by its path. The numbers of the sites are their positions in the list.
func overlay(dir, pkg string, list []*site) (texts map[string][]byte, err error) {
	number := map[*site]int{}
	files := map[string][]*site{}
	for i, s := range list {
		if !s.invalid && s.pkg() == pkg {
			number[s] = i
			files[s.file] = append(files[s.file], s)
		}
	}
	replace := map[string]string{}
	texts = map[string][]byte{}
	write := func(path, name string, text []byte) error {
		to := filepath.Join(dir, name)
		full, err := filepath.Abs(path)
		replace[full], texts[full] = to, text
		return errors.Join(err, os.WriteFile(to, text, 0o600))
	}
	for file, sites := range files {
		slices.SortStableFunc(sites, func(a, b *site) int { return a.order - b.order })
		name := strings.ReplaceAll(file, "/", "_")
		pkg, err := parser.ParseFile(token.NewFileSet(), file, sites[0].source, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		extra := filepath.Join(filepath.Dir(file), "mutations_generated.go")
		err = errors.Join(write(file, name, instrument(sites[0].source, sites, number)),
			write(extra, strings.ReplaceAll(extra, "/", "_"), fmt.Appendf(nil, switches, pkg.Name.Name)))
		if err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	return texts, errors.Join(err, os.WriteFile(filepath.Join(dir, "overlay.json"), b, 0o600))
}
