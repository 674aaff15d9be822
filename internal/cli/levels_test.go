package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// leveledLog returns a logger with these levels, and its output.
func leveledLog(t *testing.T, levels string) (*slog.Logger, *Levels, *bytes.Buffer) {
	t.Helper()
	l, err := NewLevels(levels)
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	next := slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(&leveled{next: next, levels: l, repeats: newRepeats()}), l, out
}

// TestLevels: levels change at run time, for all packages and for single ones.
func TestLevels(t *testing.T) {
	log, levels, out := leveledLog(t, "info")
	for _, step := range []struct{ set, want, lines string }{
		{"", "info", "info warn"},
		{"debug", "debug", "debug info warn"},
		{"warn", "warn", "warn"},
		{"internal/cli=debug", "warn,internal/cli=debug", "debug info warn"},
		{"internal=info,internal/cli=error", "warn,internal=info,internal/cli=error", ""},
		{"error,internal=debug", "error,internal=debug", "debug info warn"},
		{"debug,picker=error", "debug,picker=error", "debug info warn"},
		{"error", "error", ""},
	} {
		if step.set != "" {
			if err := levels.Set(step.set); err != nil {
				t.Fatal(err)
			}
		}
		out.Reset()
		log.Debug("debug", "step", step.set)
		log.Info("info", "step", step.set)
		log.Warn("warn", "step", step.set)
		var got []string
		for _, name := range []string{"debug", "info", "warn"} {
			if strings.Contains(out.String(), "msg="+name) {
				got = append(got, name)
			}
		}
		if lines := strings.Join(got, " "); lines != step.lines || levels.String() != step.want {
			t.Errorf("after %q: levels %s, lines %q, want %s, %q", step.set, levels, lines, step.want, step.lines)
		}
	}
	for _, bad := range []string{"loud", "picker=loud", "=debug", "debug,", ""} {
		if err := levels.Set(bad); err == nil || levels.String() != "error" {
			t.Errorf("Set(%q) = %v, levels %s", bad, err, levels)
		}
	}
}

// TestPackageOf: the package of methods, closures and functions of other modules.
func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"github.com/grapevine-epp/grapevine/picker/monitor.(*Monitor).step.func1": "picker/monitor",
		"github.com/grapevine-epp/grapevine/events.Open":                          "events",
		"main.main":                "main",
		"gopkg.in/yaml.v3/inner.F": "gopkg.in/yaml.v3/inner",
		"":                         "",
	} {
		if got := packageOf(function); got != want {
			t.Errorf("packageOf(%s) = %s, want %s", function, got, want)
		}
	}
}

// TestRepeatedLines: of equal lines, five a minute are written, and a later line has the number of
// the others. Lines of other endpoints and debug lines are not affected.
func TestRepeatedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _, out := leveledLog(t, "debug")
		lost := log.With("part", "events")
		for i := range 100 {
			lost.Warn("event stream lost", "endpoint", "10.0.0.1:8000", "after", time.Duration(i))
			log.Debug("request", "endpoint", "10.0.0.1:8000")
			log.InfoContext(Single(t.Context()), "decision", "endpoint", "10.0.0.1:8000")
		}
		if n := strings.Count(out.String(), "msg=decision"); n != 100 {
			t.Errorf("%d lines about single requests, want 100", n)
		}
		lost.Warn("event stream lost", "endpoint", "10.0.0.2:8000")
		log.Warn("event stream lost", "endpoint", "10.0.0.1:8000") // another logger
		if n := strings.Count(out.String(), "event stream lost"); n != 5+1+1 {
			t.Errorf("%d lines, want 7", n)
		}
		if n := strings.Count(out.String(), "msg=request"); n != 100 {
			t.Errorf("%d debug lines, want 100", n)
		}
		out.Reset()
		time.Sleep(repeatWindow)
		lost.Warn("event stream lost", "endpoint", "10.0.0.1:8000", "after", time.Second)
		if got, want := out.String(), "repeated=95"; strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("after a minute: %q, want one line with %s", got, want)
		}
		for range 7 {
			lost.Warn("another", "endpoint", "10.0.0.1:8000")
		}
		out.Reset()
		time.Sleep(2 * repeatWindow)
		log.Info("something else")
		if got := out.String(); !strings.Contains(got, "msg=another repeated=2") || !strings.Contains(got, "something else") {
			t.Errorf("after the repetition: %q, want the count of the lines that were dropped", got)
		}
	})
}

// TestCodes: a line about a problem has its code once, also if it is repeated.
func TestCodes(t *testing.T) {
	log, _, out := leveledLog(t, "info")
	log.Warn("endpoint health changed", "endpoint", "10.0.0.1:8000", "to", "out", "cause", "stalled")
	log.Info("member reachable", "member", "b")
	log.Info("replica started")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"code=GV3002", "code=GV2001", ""} {
		if got := strings.Count(lines[i], "code="); got != strings.Count(want, "code=") || !strings.Contains(lines[i], want) {
			t.Errorf("line %q, want %q in it", lines[i], want)
		}
	}
}

// TestManyDifferentLines: the number of counted lines is bounded, and all of them are written.
func TestManyDifferentLines(t *testing.T) {
	log, _, out := leveledLog(t, "info")
	for i := range 3 * repeatLines {
		log.Info("line", "n", fmt.Sprint("n", i))
	}
	if n := strings.Count(out.String(), "\n"); n != 3*repeatLines {
		t.Errorf("%d lines, want %d", n, 3*repeatLines)
	}
	if n := len(log.Handler().(*leveled).repeats.lines); n > repeatLines {
		t.Errorf("%d lines are counted, want at most %d", n, repeatLines)
	}
}

// TestLevelsDoNotAllocate: a line below its level costs no allocation, if no package has a level of its own.
func TestLevelsDoNotAllocate(t *testing.T) {
	log, _, _ := leveledLog(t, "info")
	if n := testing.AllocsPerRun(100, func() { log.Debug("request") }); n != 0 {
		t.Errorf("%v allocations for a debug line that is not written", n)
	}
}
