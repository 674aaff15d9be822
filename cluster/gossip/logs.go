package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// memberlistLog converts memberlist's log lines to records. It also counts refused packets and
// streams, which memberlist only logs.
type memberlistLog struct {
	log     *slog.Logger
	mu      sync.Mutex
	refused map[string]uint64
	udp     map[string]udpLoss // by member that UDP packets do not reach
	repeats map[string]repeat
}

// repeat is a logged warning and the number of suppressed repeats.
type repeat struct {
	at   time.Time
	more uint64
}

// Warnings that differ only in names and numbers are logged once per repeatPause, with the number
// of repeats. At most repeatKinds kinds are distinguished.
const (
	repeatPause = time.Minute
	repeatKinds = 64
)

// udpLoss counts consecutive probes of a member that succeeded over TCP but not over UDP.
type udpLoss struct {
	row  int
	last time.Time
}

// UDP counts as blocked after udpOften consecutive probes of a member without an answer. A network
// with losses lets some packets through. A pause in probing of udpPause resets the count.
const (
	udpPause   = time.Minute
	udpOften   = 6
	udpMembers = 1024
)

// Reasons for refusals, in addition to the reasons of package stream.
const (
	refusedKey       = "key"
	refusedLabel     = "label"
	refusedPlaintext = "plaintext"
	refusedIdentity  = "identity"
	refusedMany      = "many" // too many connections to the gossip port
)

var refusals = []struct{ part, reason string }{
	{"encryption is configured but remote state is not encrypted", refusedPlaintext},
	{"remote state is encrypted and encryption is not configured", refusedKey},
	{"no installed keys", refusedKey},
	{"decrypt", refusedKey},
	{"unacceptable label", refusedLabel}, // only another label: timeouts mention the label's header too
}

func newMemberlistLog(log *slog.Logger) *memberlistLog {
	return &memberlistLog{log: log, refused: map[string]uint64{}, udp: map[string]udpLoss{}, repeats: map[string]repeat{}}
}

// Write handles one line.
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
		level = slog.LevelDebug // counted; a line per packet would flood the log
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

// again reports whether a warning should be logged, and how many like it were suppressed since the
// last.
func (l *memberlistLog) again(kind string, now time.Time) (log bool, more uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.repeats[kind]; !known && len(l.repeats) >= repeatKinds {
		kind = "" // all other kinds together
	}
	r, known := l.repeats[kind]
	if known && now.Sub(r.at) < repeatPause {
		r.more++
		l.repeats[kind] = r
		return false, 0
	}
	l.repeats[kind] = repeat{at: now}
	return true, r.more
}

// kindOf returns a line without node names, addresses and numbers.
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
	if name, ok := strings.CutSuffix(s, " over tcp but udp probes failed, network may be misconfigured"); ok {
		return l.lostUDP(name[strings.LastIndexByte(name, ' ')+1:])
	}
	for _, r := range refusals {
		if strings.Contains(s, r.part) {
			l.refused[r.reason]++
			return true
		}
	}
	// A connection that ends or times out before its first bytes proves nothing about labels.
	return strings.Contains(s, "receive and remove the stream label header")
}

// lostUDP records a probe that succeeded over TCP only. It reports whether this was already
// reported for the member. The caller holds mu.
func (l *memberlistLog) lostUDP(member string) (again bool) {
	u := l.udp[member]
	if time.Since(u.last) > udpPause {
		u.row = 0
	}
	if u.row == 0 && len(l.udp) >= udpMembers {
		clear(l.udp)
	}
	u.row, u.last = u.row+1, time.Now()
	l.udp[member] = u
	return u.row > 1
}

// probed records that UDP reaches a member.
func (l *memberlistLog) probed(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.udp, strings.ToLower(member))
}

func (l *memberlistLog) count(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[reason]++
}

// state returns the refusals, and whether UDP fails to reach a member.
func (l *memberlistLog) state() (map[string]uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.refused))
	for k, v := range l.refused {
		out[k] = v
	}
	for _, u := range l.udp {
		if u.row >= udpOften && time.Since(u.last) < udpPause {
			return out, true
		}
	}
	return out, false
}
