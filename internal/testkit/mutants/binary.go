package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// binary has the tests of one package, built with all mutations of a sample.
type binary struct {
	pkg, path string
	tests     []*unitTest // by duration, shortest first
	skipped   int         // tests for which there was no time
	broken    []string    // tests that fail twice, or take too long, without a mutation
}

// unitTest is one test of a binary.
type unitTest struct {
	name    string
	took    time.Duration
	reaches []byte // 1 for each mutation that the test reaches
}

const (
	longTest  = 40 * time.Second // tests that take longer are left out
	hangAfter = 15 * time.Second // in addition to ten times the usual duration
)

// build compiles the tests of pkg, and traces which mutations each test with a matching name reaches, within
// a time limit. It returns nil if the package has no tests.
func build(pkg, dir string, list []*site, tests *regexp.Regexp, limit time.Duration) (*binary, error) {
	b := &binary{pkg: pkg, path: filepath.Join(dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "_")+".test")}
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", b.path, pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	if _, err := os.Stat(b.path); err != nil {
		return nil, nil
	}
	out, err := b.command(context.Background(), "-test.list", "^(Test|Fuzz|Example)").Output()
	if err != nil {
		return nil, fmt.Errorf("tests of %s: %w", pkg, err)
	}
	var mu sync.Mutex
	names := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return !testName.MatchString(name) || !tests.MatchString(name) })
	b.skipped = each(names, limit, func(worker int, name string) {
		file := filepath.Join(dir, fmt.Sprintf("trace%d", worker))
		t := b.trace(name, file, len(list))
		if t == nil { // possibly because of other load
			t = b.trace(name, file, len(list))
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case t == nil:
			b.broken = append(b.broken, name)
		case bytes.IndexByte(t.reaches, 1) >= 0:
			b.tests = append(b.tests, t)
		}
	})
	slices.SortFunc(b.tests, func(x, y *unitTest) int { return int(x.took - y.took) })
	return b, nil
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)\w*$`)

// command runs the binary in its package's folder.
func (b *binary) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.pkg
	cmd.Env = append(os.Environ(), "GRAPEVINE_QUICK=1") // without Envoy and other parts from outside
	cmd.WaitDelay = time.Second                         // programs that a test started go on for a while
	return cmd
}

// trace runs one test without a mutation; nil if the test fails.
func (b *binary) trace(name, file string, mutations int) *unitTest {
	if err := os.WriteFile(file, make([]byte, max(mutations, 1)), 0o600); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), longTest)
	defer cancel()
	cmd := b.command(ctx, "-test.run", "^"+name+"$")
	cmd.Env = append(cmd.Env, envTrace+"="+file)
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return nil
	}
	reaches, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return &unitTest{name, time.Since(began), reaches}
}

// catches runs the tests that reach mutation n. It reports whether any does, and whether one fails in
// two runs in a row: a test that fails once may be one that depends on the machine's load.
func (b *binary) catches(n int) (reached, caught bool) {
	var names []string
	var usual time.Duration
	for _, t := range b.tests {
		if t.reaches[n] == 1 {
			names, usual = append(names, t.name), usual+t.took
		}
	}
	if len(names) == 0 {
		return false, false
	}
	passed, hung := b.run(n, names, usual)
	if passed || hung {
		return true, hung
	}
	passed, _ = b.run(n, names, usual)
	return true, !passed
}

// run runs tests with mutation n. Short tests run first, on their own, since most mutations fail
// in them.
func (b *binary) run(n int, names []string, usual time.Duration) (passed, hung bool) {
	const first = 8
	if len(names) > 2*first {
		if passed, hung = b.run(n, names[:first], usual); !passed {
			return passed, hung
		}
		names = names[first:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangAfter+10*usual)
	defer cancel()
	cmd := b.command(ctx, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Env = append(cmd.Env, envActive+"="+strconv.Itoa(n))
	err := cmd.Run()
	return err == nil, ctx.Err() != nil
}
