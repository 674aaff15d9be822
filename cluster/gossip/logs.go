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
	udp     map[string]udpLoss // by member to which UDP does not get through
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

// udpLoss is how often in a row memberlist reached a member by TCP and not by UDP.
type udpLoss struct {
	row  int
	last time.Time
}

// UDP is called blocked when none of so many probes in a row of one member got through: a
// slow network that loses packets lets one through now and then, a blocked one none. Who was
// not probed for udpPause is not counted.
const (
	udpPause   = time.Minute
	udpOften   = 6
	udpMembers = 1024
)

// Reasons for refusals, beyond those of package stream.
const (
	refusedKey       = "key"
	refusedLabel     = "label"
	refusedPlaintext = "plaintext"
	refusedIdentity  = "identity"
	refusedMany      = "many" // more connections to the gossip port than members make
)

var refusals = []struct{ part, reason string }{
	{"encryption is configured but remote state is not encrypted", refusedPlaintext},
	{"remote state is encrypted and encryption is not configured", refusedKey},
	{"no installed keys", refusedKey},
	{"decrypt", refusedKey},
	{"label", refusedLabel},
}

func newMemberlistLog(log *slog.Logger) *memberlistLog {
	return &memberlistLog{log: log, refused: map[string]uint64{}, udp: map[string]udpLoss{}, said: map[string]repeat{}}
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
	if name, ok := strings.CutSuffix(s, " over tcp but udp probes failed, network may be misconfigured"); ok {
		return l.lostUDP(name[strings.LastIndexByte(name, ' ')+1:])
	}
	for _, r := range refusals {
		if strings.Contains(s, r.part) {
			l.refused[r.reason]++
			return true
		}
	}
	return false
}

// lostUDP notes that a probe of a member came through by TCP alone. mu is held. It reports
// whether that was said of it before.
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

// probed notes that UDP gets through to a member.
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

// state returns the refusals so far, and whether UDP does not get through to a member.
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
