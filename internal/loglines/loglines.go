package loglines

import (
	"context"
	"log/slog"
)

// Lines are records in the order in which they were added. The zero value is empty. The
// mutex of the code that adds them guards them.
type Lines struct{ list []record }

type record struct {
	level   slog.Level
	message string
	args    []any
}

// Add adds a record. Arguments are alternating keys and values, as for slog.Logger.Log.
func (l *Lines) Add(level slog.Level, message string, args ...any) {
	l.list = append(l.list, record{level, message, args})
}

// Info adds a record of that level.
func (l *Lines) Info(message string, args ...any) { l.Add(slog.LevelInfo, message, args...) }

// Warn adds a record of that level.
func (l *Lines) Warn(message string, args ...any) { l.Add(slog.LevelWarn, message, args...) }

// Take returns the records and leaves l empty.
func (l *Lines) Take() Lines {
	taken := *l
	l.list = nil
	return taken
}

// Write writes the records to log.
func (l Lines) Write(log *slog.Logger) {
	for _, r := range l.list {
		log.Log(context.Background(), r.level, r.message, r.args...) //nolint:sloglint // the message was a literal where the record was added
	}
}
