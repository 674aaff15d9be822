package cli

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/internal/problems"
)

// Levels are the levels from which a log's lines are written: one for all packages, and others for
// single packages. They can be changed at any time. Safe for concurrent use.
type Levels struct {
	mu    sync.Mutex // serializes changes
	state atomic.Pointer[levelState]
}

// levelState is immutable.
type levelState struct {
	base, least slog.Level
	packages    map[string]slog.Level // by path within the module
}

// NewLevels reads levels such as "info" or "info,picker/monitor=debug".
func NewLevels(text string) (*Levels, error) {
	l := new(Levels)
	return l, l.Set(text)
}

// Set replaces the level of all packages, or of single ones: "debug", "events=debug",
// "warn,events=debug". A level for all packages removes the levels of single ones. It changes
// nothing if it returns an error.
func (l *Levels) Set(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := levelState{packages: map[string]slog.Level{}}
	if old := l.state.Load(); old != nil {
		next.base = old.base
		maps.Copy(next.packages, old.packages)
	}
	for part := range strings.SplitSeq(text, ",") {
		pkg, name, single := strings.Cut(strings.TrimSpace(part), "=")
		if !single {
			pkg, name = "", pkg
		}
		var level slog.Level
		if err := level.UnmarshalText([]byte(name)); err != nil || single && pkg == "" {
			return fmt.Errorf("%q: want debug, info, warn or error, or PACKAGE=LEVEL", part)
		}
		if single {
			next.packages[pkg] = level
		} else {
			next.base = level
			clear(next.packages)
		}
	}
	next.least = next.base
	for _, level := range next.packages {
		next.least = min(next.least, level)
	}
	l.state.Store(&next)
	return nil
}

// String returns the levels in the form that Set reads.
func (l *Levels) String() string {
	s := l.state.Load()
	text := strings.ToLower(s.base.String())
	for _, pkg := range slices.Sorted(maps.Keys(s.packages)) {
		text += "," + pkg + "=" + strings.ToLower(s.packages[pkg].String())
	}
	return text
}

// of returns the level of the package of a line. A package's level also holds for the packages
// below it.
func (s *levelState) of(pc uintptr) slog.Level {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	pkg := packageOf(frame.Function)
	for pkg != "" {
		if level, ok := s.packages[pkg]; ok {
			return level
		}
		at := strings.LastIndexByte(pkg, '/')
		pkg = pkg[:max(at, 0)]
	}
	return s.base
}

// modulePath precedes the packages of this module in the names of functions.
const modulePath = "github.com/grapevine-epp/grapevine/"

// packageOf returns the package of a function, without the module's path.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/')
	if dot := strings.IndexByte(function[slash+1:], '.'); dot >= 0 {
		function = function[:slash+1+dot]
	}
	return strings.TrimPrefix(function, modulePath)
}

// Limits of repeated lines.
const (
	repeatWindow = time.Minute
	repeatBurst  = 5    // equal lines that are written in a window
	repeatLines  = 1024 // different lines that are counted
)

// repeats counts equal lines. Times and other measured values are not compared.
type repeats struct {
	seed       maphash.Seed
	now        func() time.Time
	suppressed atomic.Uint64

	mu    sync.Mutex
	lines map[uint64]*repeated
	swept time.Time
}

type repeated struct {
	since   time.Time
	seen    int
	dropped int
	message string
	level   slog.Level
}

func newRepeats() *repeats {
	return &repeats{seed: maphash.MakeSeed(), now: time.Now, lines: map[uint64]*repeated{}}
}

// take counts a line. It returns false if the line is to be dropped. before is how many equal lines
// were dropped before this one. ended are lines whose repetition has ended.
func (r *repeats) take(key uint64, rec *slog.Record) (write bool, before int, ended []repeated) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.lines[key]
	switch {
	case line == nil:
		line = &repeated{since: now, message: rec.Message, level: rec.Level}
		if len(r.lines) < repeatLines {
			r.lines[key] = line
		}
	case now.Sub(line.since) >= repeatWindow:
		before = line.dropped
		line.since, line.seen, line.dropped = now, 0, 0
	}
	if now.Sub(r.swept) >= repeatWindow {
		r.swept = now
		for k, other := range r.lines {
			if now.Sub(other.since) >= repeatWindow {
				if other.dropped > 0 {
					ended = append(ended, *other)
				}
				delete(r.lines, k)
			}
		}
	}
	if line.seen++; line.seen > repeatBurst {
		line.dropped++
		r.suppressed.Add(1)
		return false, 0, ended
	}
	return true, before, ended
}

// single marks the context of lines that never count as repetitions.
type single struct{}

// Single returns a context for lines about single requests: no such line repeats another.
func Single(ctx context.Context) context.Context { return context.WithValue(ctx, single{}, true) }

// leveled is a handler that drops lines below their package's level, and lines that repeat others.
type leveled struct {
	next    slog.Handler
	levels  *Levels
	repeats *repeats
	prefix  string // attributes and groups of this logger
}

// Enabled implements slog.Handler. It does not know the package yet.
func (h *leveled) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.state.Load().least
}

// Handle implements slog.Handler.
func (h *leveled) Handle(ctx context.Context, rec slog.Record) error {
	if s := h.levels.state.Load(); len(s.packages) > 0 && rec.Level < s.of(rec.PC) {
		return nil
	}
	if rec.Level < slog.LevelInfo || ctx.Value(single{}) != nil {
		return h.next.Handle(ctx, rec) // lines of single requests
	}
	write, before, ended := h.repeats.take(h.key(&rec), &rec)
	for _, e := range ended {
		line := slog.NewRecord(rec.Time, e.level, e.message, 0)
		line.AddAttrs(slog.Int("repeated", e.dropped))
		if err := h.next.Handle(ctx, line); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	code := problemOf(&rec)
	if before > 0 || code != "" {
		rec = rec.Clone()
	}
	if code != "" {
		rec.AddAttrs(slog.String("code", string(code)))
	}
	if before > 0 {
		rec.AddAttrs(slog.Int("repeated", before))
	}
	return h.next.Handle(ctx, rec)
}

// problemOf returns the code of the problem that a line begins or ends.
func problemOf(rec *slog.Record) problems.Code {
	cause := ""
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "cause" {
			cause = a.Value.String()
		}
		return cause == ""
	})
	return problems.OfLog(rec.Message, cause)
}

// key identifies equal lines: the same message with the same names and numbers. Durations, times and
// fractions are left out, because they differ between repetitions.
func (h *leveled) key(rec *slog.Record) uint64 {
	var k maphash.Hash
	k.SetSeed(h.repeats.seed)
	k.WriteString(h.prefix)
	k.WriteString(rec.Level.String())
	k.WriteString(rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindDuration, slog.KindTime, slog.KindFloat64:
		default:
			k.WriteByte(0)
			k.WriteString(a.Key)
			k.WriteByte(0)
			k.WriteString(a.Value.String())
		}
		return true
	})
	return k.Sum64()
}

// WithAttrs implements slog.Handler.
func (h *leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		c.prefix += "\x00" + a.String()
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *leveled) WithGroup(name string) slog.Handler {
	c := *h
	c.next, c.prefix = h.next.WithGroup(name), h.prefix+"\x01"+name
	return &c
}
