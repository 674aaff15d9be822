package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/cli"
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
	if err != nil || strings.Count(out, "  tiny  ") != 2 || !strings.Contains(out, "lmetric") {
		t.Errorf("%v\n%s", err, out)
	}
	if files, err := os.ReadDir(plots); err != nil || len(files) == 0 {
		t.Errorf("no plots: %v", err)
	}
	if _, err := os.Stat(page); err != nil {
		t.Error(err)
	}
	args := []string{"--workload", "chat", "--saturation", "chat=1", "--length", "2m", "--engines", "2", "--replicas", "1,2", "--share", "0s,cut", "--policy", "default", "--csv", "-"}
	first, err := replayOf(t, args...)
	if err != nil || strings.Count(first, "\n") != 4 {
		t.Errorf("%v\n%s", err, first)
	}
	if second, _ := replayOf(t, args...); second != first {
		t.Error("equal arguments give different results")
	}
}

// TestReplayUsage checks that invalid values and flags without effect are usage errors.
func TestReplayUsage(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "tiny.jsonl")
	if err := os.WriteFile(trace, []byte(tinyTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		_, err := replayOf(t, args...)
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	chat := func(want string, args ...string) {
		t.Helper()
		f(want, append([]string{"--workload", "chat"}, args...)...)
	}
	f("--trace or --workload")
	f("duplicate workload name tiny", "--trace", trace, "--trace", trace, "--rate", "1")
	f(`workload "x"`, "--workload", "x")
	chat(`policy "x": there are default`, "--policy", "x")
	chat("--policy: duplicate value default", "--policy", "default,default")
	chat(`--share "x"`, "--replicas", "2", "--share", "x")
	chat(`--transform "x"`, "--transform", "x")
	chat(`--transform "capped=0"`, "--transform", "capped=0")
	chat(`--index "x"`, "--index", "x")
	chat(`--model "x"`, "--model", "x")
	chat(`--plot-format "x"`, "--plots", dir, "--plot-format", "x")
	chat(`--saturation "x"`, "--saturation", "x")
	chat(`"4x0"`, "--engines", "4x0")
	chat(`"0"`, "--engines", "0")
	chat("--warmup 1", "--warmup", "1")
	chat("--speed 0", "--speed", "0")
	chat("--bodies 2", "--bodies", "2")
	chat("--load and --rate 0", "--load", "0")
	chat("--length has no effect: --requests", "--length", "1m", "--requests", "10")
	chat("--seeds: duplicate value 3", "--seeds", "3,3")
	chat("only one of", "--csv", "-", "--json", "-")
	chat("--saturation chatt has no effect", "--saturation", "chatt=1")
	chat("--share has no effect", "--share", "1s")
	chat("--load has no effect: --rate", "--load", "1", "--rate", "1")
	chat("--saturation has no effect: --rate", "--saturation", "chat=1", "--rate", "1")
	chat("--spread has no effect", "--spread", "1s")
	chat("--plot-format has no effect", "--plot-format", "png")
	chat("--index-delay has no effect", "--index", "approximate", "--index-delay", "1s")
	chat("--speculate has no effect", "--index", "approximate", "--speculate", "1s")
	chat("--own-load has no effect: a generated", "--own-load")
	chat("--csv has no effect: --find-saturation", "--find-saturation", "--policy", "lmetric", "--csv", "-")
	chat("--find-saturation requires a single --policy", "--find-saturation")
	f("--load has no effect: --own-load replays", "--trace", trace, "--own-load", "--load", "1")
}
