package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func replayOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append([]string{"replay"}, args...))
	err := root.ExecuteContext(context.Background())
	if errOut.Len() > 0 {
		t.Errorf("%v wrote %q to standard error", args, errOut.String())
	}
	return out.String(), err
}

const tinyTrace = `{"timestamp": 0, "input_length": 1500, "output_length": 20, "hash_ids": [1, 2, 3]}
{"timestamp": 900, "input_length": 700, "output_length": 20, "hash_ids": [9, 8]}
{"timestamp": 9000, "input_length": 2600, "output_length": 20, "hash_ids": [1, 2, 4, 5, 6, 7]}
`

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	trace, plots, page := filepath.Join(dir, "tiny.jsonl"), filepath.Join(dir, "plots"), filepath.Join(dir, "page.html")
	if err := os.WriteFile(trace, []byte(tinyTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := replayOf(t, "--trace", trace, "--rate", ".2", "--engines", "2", "--policy", "default,lmetric", "--seeds", "1,2",
		"--plots", plots, "--html", page, "--warmup", "0")
	if err != nil || strings.Count(out, "tiny") != 2 || !strings.Contains(out, "lmetric") {
		t.Errorf("%v\n%s", err, out)
	}
	if files, err := os.ReadDir(plots); err != nil || len(files) == 0 {
		t.Errorf("no plots: %v", err)
	}
	if _, err := os.Stat(page); err != nil {
		t.Error(err)
	}
	args := []string{"--workload", "chat", "--length", "2m", "--engines", "2", "--replicas", "1,2", "--share", "0s,cut", "--policy", "default", "--csv", "-"}
	first, err := replayOf(t, args...)
	if err != nil || strings.Count(first, "\n") != 4 {
		t.Errorf("%v\n%s", err, first)
	}
	if second, _ := replayOf(t, args...); second != first {
		t.Error("equal arguments give different results")
	}
}

func TestReplayUsage(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "tiny.jsonl")
	if err := os.WriteFile(trace, []byte(tinyTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		_, err := replayOf(t, args...)
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	f("--trace or --workload")
	f("--saturation tiny=RATE", "--trace", trace)
	f("no such file", "--trace", trace+"x", "--rate", "1")
	f(`workload "x"`, "--workload", "x")
	f(`policy "x"`, "--workload", "chat", "--policy", "x")
	f(`--share "x"`, "--workload", "chat", "--share", "x")
	f(`--transform "x"`, "--workload", "chat", "--transform", "x")
	f(`--transform "capped=0"`, "--workload", "chat", "--transform", "capped=0")
	f(`--index "x"`, "--workload", "chat", "--index", "x")
	f(`--model "x"`, "--workload", "chat", "--model", "x")
	f(`--plot-format "x"`, "--workload", "chat", "--plot-format", "x")
	f(`--saturation "x"`, "--workload", "chat", "--saturation", "x")
}
