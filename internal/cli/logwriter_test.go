package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a writer whose Write waits for open.
type gate struct {
	open chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
	err error // returned instead
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// Write implements io.Writer.
func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	return g.out.Write(b)
}

func (g *gate) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.String()
}

func (g *gate) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// TestLogWriterDoesNotBlock: lines that find the buffer full are dropped and counted, those
// before them arrive in order, and one line in the log's own format reports the loss.
func TestLogWriterDoesNotBlock(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				w := NewLogWriter(g)
				log, err := w.Logger(format, "info")
				if err != nil {
					t.Fatal(err)
				}
				log.Info("first")
				synctest.Wait() // it is in a Write that does not return
				const lines = 20_000
				for i := range lines {
					log.Info("event", "i", i, "pad", strings.Repeat("x", 50))
				}
				lost := w.Dropped()
				if lost == 0 || lost >= lines {
					t.Fatalf("%d of %d lines dropped, want some", lost, lines)
				}
				if w.Flush(time.Second) {
					t.Error("Flush() = true while the writer blocks")
				}
				close(g.open)
				if !w.Flush(time.Second) {
					t.Error("Flush() = false after the writer has recovered")
				}
				log.Info("last")
				w.Flush(time.Second)
				got := strings.Split(strings.TrimSuffix(g.text(), "\n"), "\n")
				if want := int(1 + lines - lost + 1 + 1); len(got) != want {
					t.Fatalf("%d lines written, want %d", len(got), want)
				}
				report := got[len(got)-2]
				if !strings.Contains(report, "log lines lost") || !strings.Contains(report, fmt.Sprint(lost)) {
					t.Errorf("report %q, want %d lost lines", report, lost)
				}
				if format == "json" && !json.Valid([]byte(report)) {
					t.Errorf("report %q is not JSON", report)
				}
				if !strings.Contains(got[1], "i=0") && !strings.Contains(got[1], `"i":0`) {
					t.Errorf("second line %q, want the first event", got[1])
				}
			})
		})
	}
}

// TestLogWriterReportsFailedWrites: lines that a full disk refuses are counted as lost, and
// reported with the next line that can be written.
func TestLogWriterReportsFailedWrites(t *testing.T) {
	g := newGate()
	close(g.open)
	g.fail(errors.New("no space left on device"))
	w := NewLogWriter(g)
	log, err := w.Logger("text", "info")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		log.Info("lost")
		w.Flush(time.Minute)
	}
	g.fail(nil)
	log.Info("kept")
	w.Flush(time.Minute)
	got := g.text()
	if w.Dropped() != 3 || strings.Count(got, "\n") != 2 || !strings.Contains(got, "msg=kept") || !strings.Contains(got, "lines=3") {
		t.Errorf("dropped %d, written %q, want 3 lost lines, the kept one and a report", w.Dropped(), got)
	}
}

// TestExitAfter: the process ends when the time for stopping is over, and not before; a
// command that has returned withdraws that.
func TestExitAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		stop := exitAfter(ctx, 5*time.Second, func() { ended.Add(1) })
		time.Sleep(time.Minute)
		if synctest.Wait(); ended.Load() != 0 {
			t.Fatal("the process ended without a signal")
		}
		cancel()
		time.Sleep(4 * time.Second)
		if synctest.Wait(); ended.Load() != 0 {
			t.Error("the process ended before its time")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); ended.Load() != 1 {
			t.Error("the process did not end")
		}
		stop()
		stop = exitAfter(ctx, 5*time.Second, func() { ended.Add(1) })
		time.Sleep(time.Second)
		stop()
		time.Sleep(time.Minute)
		if synctest.Wait(); ended.Load() != 1 {
			t.Error("the process ended after its command had returned")
		}
	})
}

// TestLoggerMakesLinesPrintable: no character of an attribute changes a terminal or the order of
// text.
func TestLoggerMakesLinesPrintable(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		g := newGate()
		close(g.open)
		w := NewLogWriter(g)
		log, err := w.Logger(format, "info")
		if err != nil {
			t.Fatal(err)
		}
		log.Info("a", "name", "x\x1b[2J\u009b2J\u202ey\u2066z")
		if !w.Flush(time.Minute) {
			t.Fatal("lines were not written")
		}
		text := g.text()
		if !strings.Contains(text, "y") || strings.ContainsAny(text, "\x1b\u009b\u202e\u2066") {
			t.Errorf("%s: %q has unprintable characters, or lacks the printable ones", format, text)
		}
	}
}
