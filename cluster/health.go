package cluster

import (
	"fmt"
	"strings"
	"time"
)

// Health is how the group is, in one word and one line.
type Health struct {
	State string `json:"state"` // off, joined, joining, alone, partitioned, degraded, misconfigured
	Line  string `json:"line"`
	OK    bool   `json:"ok"`
}

// grace is how long a peer may be listed and unreachable before that is
// called a partition.
const grace = 2 * time.Second

// health finds the most important thing to say.
func health(s *Status) Health {
	up, apart := 0, []string{}
	differ, approximate := 0, 0
	for _, p := range s.Peers {
		switch {
		case p.State == "up":
			up++
		case p.For >= grace:
			apart = append(apart, fmt.Sprintf("%s (%s for %s)", p.Name, p.State, p.For.Round(time.Second)))
		}
		for _, l := range p.Logs {
			differ += l.Differ
		}
	}
	for _, l := range s.Lost {
		apart = append(apart, fmt.Sprintf("%s (went without a word %s ago, dead or cut off)", l.Name, l.For.Round(time.Second)))
	}
	for _, l := range s.Logs {
		approximate += l.Approximate
	}
	bad := func(state, format string, a ...any) Health {
		return Health{State: state, Line: state + ": " + fmt.Sprintf(format, a...)}
	}
	switch {
	case s.Bus.Kind == "none":
		return Health{State: "off", OK: true, Line: "off: this replica shares nothing (no cluster configured)"}
	case s.Bus.Disconnected:
		return bad("partitioned", "%s", s.Bus.Problem)
	case s.Bus.Problem != "":
		return bad("misconfigured", "%s", s.Bus.Problem)
	case len(apart) > 0:
		return bad("partitioned", "%d of %d other members cannot be reached: %s", len(apart), len(s.Peers)+len(s.Lost), strings.Join(apart, ", "))
	case len(s.Peers) == 0 && s.Phase == Settling.String():
		return Health{State: "joining", Line: "joining: looking for other members for " + s.Uptime.Round(100*time.Millisecond).String()}
	case len(s.Peers) == 0 && s.Bus.Joining:
		return bad("alone", "no other member found%s%s", joinHint(s.Bus), refusedHint(s.Bus))
	case len(s.Peers) == 0:
		return Health{State: "alone", OK: true, Line: "alone: no other member is configured or has joined"}
	case s.Phase == Settling.String():
		return Health{State: "joining", Line: fmt.Sprintf("joining: catching up with %d of %d other members", up, len(s.Peers))}
	case s.Phase == Degraded.String():
		return bad("degraded", "went on without catching up with %d other members", len(s.Peers))
	}
	line := fmt.Sprintf("joined: %d other members, all reachable", len(s.Peers))
	switch {
	case differ > 0:
		line += fmt.Sprintf("; %d digests differ, being healed", differ)
	case approximate > 0:
		line += fmt.Sprintf("; %d sources known approximately", approximate)
	default:
		line += ", digests equal"
	}
	return Health{State: "joined", OK: true, Line: line}
}

func joinHint(b BusStatus) string {
	if b.JoinError == "" {
		return ""
	}
	return "; last try: " + strings.Join(strings.Fields(b.JoinError), " ")
}

// refusedHint says what was turned away while nobody could be found: most
// often the reason.
func refusedHint(b BusStatus) string {
	for _, reason := range []string{"key", "label", "plaintext", "identity"} {
		if n := b.Refused[reason]; n > 0 {
			return fmt.Sprintf("; %d refused because of their %s: does it agree everywhere?", n, reason)
		}
	}
	return ""
}
