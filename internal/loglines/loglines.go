package loglines

import (
	"context"
	"log/slog"
	"runtime"
	"time"
)

// Lines are records in the order in which they were added. The zero value is empty. The
// mutex of the code that adds them guards them.
type Lines struct{ list []record }

type record struct {
	level   slog.Level
	message string
	args    []any
	pc      uintptr // of the code that added it, whose package has the log level
}

// Add adds a record. Arguments are alternating keys and values, as for slog.Logger.Log.
func (l *Lines) Add(level slog.Level, message string, args ...any) { l.add(level, message, args) }

// add adds a record of the caller's caller.
func (l *Lines) add(level slog.Level, message string, args []any) {
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:])
	l.list = append(l.list, record{level, message, args, pcs[0]})
}

// Info adds a record of that level.
func (l *Lines) Info(message string, args ...any) { l.add(slog.LevelInfo, message, args) }

// Warn adds a record of that level.
func (l *Lines) Warn(message string, args ...any) { l.add(slog.LevelWarn, message, args) }

// Take returns the records and leaves l empty.
func (l *Lines) Take() Lines {
	taken := *l
	l.list = nil
	return taken
}

// Write writes the records to log, as lines of the code that added them.
func (l Lines) Write(log *slog.Logger) {
	ctx, h := context.Background(), log.Handler()
	for _, r := range l.list {
		if h.Enabled(ctx, r.level) {
			line := slog.NewRecord(time.Now(), r.level, r.message, r.pc)
			line.Add(r.args...)
			_ = h.Handle(ctx, line) // slog.Logger ignores it as well
		}
	}
}
