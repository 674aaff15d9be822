package loglines

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLinesNameTheirOrigin: lines are written in order, from the enabled level on, with the place
// that added them.
func TestLinesNameTheirOrigin(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{AddSource: true}))
	var l Lines
	l.Add(slog.LevelDebug, "debug")
	l.Info("first", "n", 1)
	l.Add(slog.LevelError, "second", "n", 2)
	l.Warn("third", "n", 3)
	l.Take().Write(log)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3:\n%s", len(lines), out.String())
	}
	for i, want := range []string{"level=INFO", "level=ERROR", "level=WARN"} {
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "loglines_test.go:") {
			t.Errorf("line %q, want %s of this file", lines[i], want)
		}
	}
	out.Reset()
	if l.Write(log); out.Len() > 0 {
		t.Errorf("lines are written twice: %s", out.String())
	}
}
