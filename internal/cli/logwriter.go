package cli

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxLogBuffer bounds the bytes that wait for a writer. A second buffer of that size may be
// in a Write call at the same time.
const maxLogBuffer = 512 << 10

// LogWriter is an io.Writer that never blocks. It copies each write into a bounded buffer,
// which a goroutine writes to the writer below. When the buffer is full, or the writer below
// fails, lines are dropped and counted; once the writer accepts bytes again, one line reports
// how many were lost. The goroutine runs only while the buffer holds bytes. Safe for
// concurrent use.
type LogWriter struct {
	w       io.Writer
	dropped atomic.Uint64
	handler atomic.Pointer[leveled] // of the last Logger; nil: none

	mu      sync.Mutex
	buf     []byte
	lost    uint64                    // lines dropped since the last report
	idle    chan struct{}             // closed when the running goroutine ends; nil: none runs
	lostMsg func(lines uint64) []byte // nil: plain text
}

// NewLogWriter returns a LogWriter in front of w.
func NewLogWriter(w io.Writer) *LogWriter { return &LogWriter{w: w} }

// stderr is the process's standard error. All messages of a process use it, since any message could
// block on a full pipe.
var stderr = NewLogWriter(os.Stderr)

// Stderr returns the process's standard error as a writer that never blocks. Main flushes it
// at exit.
func Stderr() *LogWriter { return stderr }

// Write implements io.Writer. It returns no error: dropped bytes are counted.
func (l *LogWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf)+len(p) > maxLogBuffer {
		l.drop(countLines(p))
		return len(p), nil
	}
	l.buf = append(l.buf, p...)
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.drain(l.idle)
	}
	return len(p), nil
}

// Dropped returns how many lines were lost.
func (l *LogWriter) Dropped() uint64 { return l.dropped.Load() }

// Levels returns the levels of the last Logger, or nil without one.
func (l *LogWriter) Levels() *Levels {
	if h := l.handler.Load(); h != nil {
		return h.levels
	}
	return nil
}

// Register registers the counters of lost and of repeated lines.
func (l *LogWriter) Register(r prometheus.Registerer) error {
	if err := r.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "grapevine_log_lines_dropped_total",
		Help: "Log lines that were lost because standard error accepted no bytes.",
	}, func() float64 { return float64(l.Dropped()) })); err != nil {
		return err
	}
	return r.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "grapevine_log_lines_repeated_total",
		Help: "Log lines that were left out because five equal ones had been written in the same minute.",
	}, func() float64 {
		if h := l.handler.Load(); h != nil {
			return float64(h.repeats.suppressed.Load())
		}
		return 0
	}))
}

// Flush waits until everything has been written. It returns false if that takes longer than
// timeout.
func (l *LogWriter) Flush(timeout time.Duration) bool {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return true
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-idle:
		return true
	case <-t.C:
		return false
	}
}

// Logger returns a logger like NewLogger's, whose lines, made printable, are written to l. The line
// about lost lines has the same format.
func (l *LogWriter) Logger(format, level string) (*slog.Logger, error) {
	log, h, err := newLeveled(Printable(l), format, level)
	if err != nil {
		return nil, err
	}
	l.handler.Store(h)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostMsg = func(lines uint64) []byte {
		var b bytes.Buffer
		if one, err := NewLogger(&b, format, "info"); err == nil {
			one.Warn("log lines lost: standard error accepted no bytes", "lines", lines)
		}
		return b.Bytes()
	}
	return log, nil
}

// drop counts lost lines. The caller holds l.mu.
func (l *LogWriter) drop(lines uint64) {
	l.lost += lines
	l.dropped.Add(lines)
}

// drain writes until the buffer is empty. The report of lost lines follows the bytes that had
// filled the buffer, which is where the lines are missing.
func (l *LogWriter) drain(idle chan struct{}) {
	defer close(idle)
	var spare []byte
	for {
		l.mu.Lock()
		out, lost := l.buf, l.lost
		if len(out) == 0 { // lost lines wait for the next line: the writer has failed
			l.idle = nil
			l.mu.Unlock()
			return
		}
		l.buf, l.lost = spare[:0], 0
		message := l.lostMsg
		l.mu.Unlock()

		n, err := l.w.Write(out)
		failed := countLines(out[min(n, len(out)):])
		if err == nil && lost > 0 {
			if _, err = l.w.Write(lostLine(message, lost)); err == nil {
				lost = 0
			}
		}
		if err != nil || lost > 0 {
			l.mu.Lock()
			l.lost += lost // counted before
			if err != nil {
				l.drop(failed)
			}
			l.mu.Unlock()
		}
		if spare = out; cap(spare) > 64<<10 {
			spare = nil
		}
	}
}

func lostLine(message func(uint64) []byte, lines uint64) []byte {
	if message == nil {
		message = func(n uint64) []byte {
			var b bytes.Buffer
			slog.New(slog.NewTextHandler(&b, nil)).Warn("log lines lost: standard error accepted no bytes", "lines", n)
			return b.Bytes()
		}
	}
	return message(lines)
}

// countLines returns how many lines end in b; a rest without a line end is one more.
func countLines(b []byte) uint64 {
	n := bytes.Count(b, []byte{'\n'})
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return uint64(n)
}
