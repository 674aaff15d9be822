package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// memberlistLog turns memberlist's log lines into records, and counts those
// that tell of refused packets and streams: it has no other way to say so.
type memberlistLog struct {
	log     *slog.Logger
	mu      sync.Mutex
	refused map[string]uint64
	udpLost time.Time // when it last said that UDP does not get through
	udpRow  int       // how often it said so, with no pause of udpPause between
	said    map[string]repeat
}

// repeat is a warning that was logged, and how often it came again since.
type repeat struct {
	at   time.Time
	more uint64
}

// A warning that differs from another one in names and numbers only is logged once in
// repeatPause, with how often it came meanwhile. So many kinds are told apart.
const (
	repeatPause = time.Minute
	repeatKinds = 64
)

// UDP is called blocked when memberlist says so often and goes on saying it: a
// slow network that loses packets makes it say so now and then, a blocked one
// with every probe, some times a second.
const (
	udpPause = 10 * time.Second
	udpOften = 8
)

// Reasons for refusals, beyond those of package stream.
const (
	refusedKey       = "key"
	refusedLabel     = "label"
	refusedPlaintext = "plaintext"
	refusedIdentity  = "identity"
)

var refusals = []struct{ part, reason string }{
	{"encryption is configured but remote state is not encrypted", refusedPlaintext},
	{"remote state is encrypted and encryption is not configured", refusedKey},
	{"no installed keys", refusedKey},
	{"decrypt", refusedKey},
	{"label", refusedLabel},
}

// Write takes one line.
func (l *memberlistLog) Write(line []byte) (int, error) {
	s := strings.TrimSpace(string(line))
	level := slog.LevelDebug
	switch {
	case strings.HasPrefix(s, "[ERR]"), strings.HasPrefix(s, "[WARN]"):
		level = slog.LevelWarn
	case strings.HasPrefix(s, "[INFO]"):
		level = slog.LevelInfo
	}
	if _, rest, ok := strings.Cut(s, "memberlist: "); ok {
		s = rest
	}
	if level == slog.LevelWarn && l.classify(strings.ToLower(s)) {
		level = slog.LevelDebug // counted; one line per packet would flood
	}
	var more uint64
	if level == slog.LevelWarn {
		var now bool
		if now, more = l.again(kindOf(s), time.Now()); !now {
			level = slog.LevelDebug
		}
	}
	args := []any{"detail", s}
	if more > 0 {
		args = append(args, "left_out", more)
	}
	l.log.Log(context.Background(), level, "memberlist", args...)
	return len(line), nil
}

// again reports whether a warning is to be logged, and how many like it were not since
// the last one was.
func (l *memberlistLog) again(kind string, now time.Time) (log bool, more uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.said[kind]; !known && len(l.said) >= repeatKinds {
		kind = "" // all others
	}
	r, known := l.said[kind]
	if known && now.Sub(r.at) < repeatPause {
		r.more++
		l.said[kind] = r
		return false, 0
	}
	l.said[kind] = repeat{at: now}
	return true, r.more
}

// kindOf is a line without what names a node, an address or a number.
func kindOf(s string) string {
	words := strings.Fields(s)
	kept := words[:0]
	for _, w := range words {
		if !strings.ContainsAny(w, "0123456789'\":=") {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

func (l *memberlistLog) classify(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(s, "udp probes failed") {
		if time.Since(l.udpLost) > udpPause {
			l.udpRow = 0
		}
		l.udpLost = time.Now()
		l.udpRow++
		return l.udpRow > 1
	}
	for _, r := range refusals {
		if strings.Contains(s, r.part) {
			l.refused[r.reason]++
			return true
		}
	}
	return false
}

func (l *memberlistLog) count(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[reason]++
}

// state returns the refusals so far, and whether UDP was lost lately.
func (l *memberlistLog) state() (map[string]uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.refused))
	for k, v := range l.refused {
		out[k] = v
	}
	return out, l.udpRow >= udpOften && time.Since(l.udpLost) < udpPause
}
