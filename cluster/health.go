package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// Health is the state of the group in one word and one line.
type Health struct {
	State string `json:"state"` // off, joined, joining, leaving, alone, partitioned, degraded, misconfigured
	Line  string `json:"line"`
	OK    bool   `json:"ok"`
}

// A listed peer may be unreachable for grace before that counts as a fault. A peer without any
// traffic counts as crashed. If membership still lists it after insist, it counts as cut off,
// because other members must be reaching it.
const (
	grace  = 2 * time.Second
	insist = 5 * time.Second
)

// missing is the set of unreachable members.
type missing struct {
	names []string // with their state
	dead  []string // names of lost members
	last  time.Duration
	cut   bool // some of them are known to be alive
}

// findMissing collects the unreachable members. A crashed member looks like one that is cut off.
// But half of a group does not crash at once, and a member whose frames still arrive, here or at
// other members, is alive.
func findMissing(s *Status) missing {
	m := missing{last: remember}
	for _, p := range s.Peers {
		if p.State == "up" || p.State == "foreign" || p.For < grace || p.Replaced {
			continue
		}
		m.names = append(m.names, fmt.Sprintf("%s (%s for %s)", p.Name, p.State, p.For.Round(time.Second)))
		m.cut = m.cut || p.State != "down" || !p.Met || p.For >= insist
	}
	for _, l := range s.Lost {
		m.names = append(m.names, fmt.Sprintf("%s (%s)", l.Name, l.fate()))
		m.dead = append(m.dead, l.Name)
		m.last = min(m.last, l.For)
		m.cut = m.cut || l.Responsive
	}
	m.cut = m.cut || 2*len(m.names) > membership(s)
	return m
}

// membership is the expected number of other members, including lost ones.
func membership(s *Status) int {
	n := len(s.Peers) + len(s.Lost)
	for _, p := range s.Peers {
		if p.Replaced {
			n--
		}
	}
	return n
}

// health returns the most important condition.
func health(s *Status) Health {
	up, differ, approximate, partial := 0, 0, 0, 0
	var foreign []string
	for _, p := range s.Peers {
		if p.State == "foreign" {
			foreign = append(foreign, fmt.Sprintf("%s (%d)", p.Name, p.Protocol))
		}
		if p.State == "up" {
			up++
		}
		for _, l := range p.Logs {
			differ += l.Differ
		}
	}
	away := findMissing(s)
	for _, l := range s.Logs {
		approximate += l.Approximate
		partial += l.Partial
	}
	bad := func(state, format string, a ...any) Health {
		return Health{State: state, Line: state + ": " + fmt.Sprintf(format, a...)}
	}
	switch {
	case s.Bus.Kind == "none":
		return Health{State: "off", OK: true, Line: "off: this replica shares nothing (no cluster configured)"}
	case s.Leaving:
		return Health{State: "leaving", OK: true, Line: "leaving: notifying other members"}
	case s.Bus.Disconnected:
		return bad("partitioned", "%s", s.Bus.Problem)
	case s.Bus.Problem != "":
		return bad("misconfigured", "%s", s.Bus.Problem)
	case away.cut && len(away.names) > 0:
		return bad("partitioned", "%d of %d other members cannot be reached: %s", len(away.names), membership(s), strings.Join(away.names, ", "))
	case s.mismatch != "":
		return bad("misconfigured", "%s", s.mismatch)
	case s.release != "":
		return bad("degraded", "%s", s.release)
	case len(s.Peers) == 0 && s.Phase == Settling.String():
		return Health{State: "joining", Line: "joining: looking for other members for " + s.Uptime.Round(100*time.Millisecond).String()}
	case len(s.Peers) == 0 && s.Bus.Joining:
		return bad("alone", "no other member found%s%s", joinHint(s.Bus), refusedHint(s.Bus))
	case len(s.Peers) == 0:
		return Health{State: "alone", OK: true, Line: "alone: no other member is configured or has joined" + refusedHint(s.Bus)}
	case s.Phase == Settling.String():
		return Health{State: "joining", Line: fmt.Sprintf("joining: catching up with %d of %s", up, others(len(s.Peers)))}
	case len(foreign) > 0:
		return bad("degraded", "%d of %s use an incompatible protocol version, so no state is shared with them: %s; this member uses %d", len(foreign), others(membership(s)), strings.Join(foreign, ", "), group.Major)
	case s.Phase == Degraded.String():
		return bad("degraded", "continued without catching up with %s", others(len(s.Peers)))
	}
	if slow := slowLinks(s); slow != "" {
		return bad("degraded", "links are slower than the limit of %s, so content of those members is not exact: %s", group.MaxRoundTrip, slow)
	}
	if up == 0 {
		return bad("degraded", "no other member answers right now (%s expected)", others(membership(s)))
	}
	line := fmt.Sprintf("joined: %s, all reachable", others(membership(s)))
	if len(away.names) > 0 {
		line = fmt.Sprintf("joined: %s reachable", others(up))
	}
	switch {
	case differ > 0:
		line += fmt.Sprintf("; %d digests differ, repairing", differ)
	case approximate > 0:
		line += fmt.Sprintf("; %s known approximately", sources(approximate))
	case partial > 0:
		line += ", digests equal; " + inPart(partial)
	default:
		line += ", digests equal"
	}
	if twice := namesakes(s); twice != "" {
		line += "; several members are named " + twice + ": set a unique name for each"
	}
	if s.aside != "" {
		line += "; " + s.aside
	}
	if len(away.names) > 0 {
		line += "; " + away.line()
	}
	return Health{State: "joined", OK: true, Line: line}
}

// slowLinks names the reachable members whose round trip exceeds the limit.
func slowLinks(s *Status) string {
	var slow []string
	for _, p := range s.Peers {
		if p.State == "up" && p.slow {
			slow = append(slow, fmt.Sprintf("%s (%s)", p.Name, p.leastRTT.Round(10*time.Millisecond)))
		}
	}
	return strings.Join(slow, ", ")
}

// namesakes returns the names shared by several reachable members, including this one. Such members
// work normally, but output does not distinguish them.
func namesakes(s *Status) string {
	count, twice := map[string]int{s.Self.Name: 1}, []string{}
	for _, p := range s.Peers {
		if p.State != "up" || p.Replaced || p.Name == "" {
			continue
		}
		if count[p.Name]++; count[p.Name] == 2 {
			twice = append(twice, p.Name)
		}
	}
	slices.Sort(twice)
	return strings.Join(twice, ", ")
}

// inPart describes sources with partial knowledge.
func inPart(n int) string {
	whose := "their engines"
	if n == 1 {
		whose = "its engine"
	}
	return fmt.Sprintf("%s known in part: no member has all events of %s", sources(n), whose)
}

// sources formats a number of event streams.
func sources(n int) string {
	if n == 1 {
		return "1 source"
	}
	return fmt.Sprintf("%d sources", n)
}

// others formats a number of other members.
func others(n int) string {
	if n == 1 {
		return "1 other member"
	}
	return fmt.Sprintf("%d other members", n)
}

// line describes the missing members of a group that continues without them.
func (m *missing) line() string {
	switch n := len(m.dead); {
	case n < len(m.names):
		return fmt.Sprintf("%d not answering: %s", len(m.names), strings.Join(m.names, ", "))
	case n == 1:
		return fmt.Sprintf("1 lost %s ago (dead or cut off): %s", m.last.Round(time.Second), m.dead[0])
	default:
		return fmt.Sprintf("%d lost, the last %s ago (dead or cut off): %s", n, m.last.Round(time.Second), strings.Join(m.dead, ", "))
	}
}

func joinHint(b BusStatus) string {
	if b.JoinError == "" {
		return ""
	}
	hint := "; last try: " + strings.Join(strings.Fields(b.JoinError), " ")
	if strings.HasSuffix(hint, "EOF") { // a peer that cannot decrypt a message closes the connection
		hint += " (its label or key may differ)"
	}
	return hint
}

// refusedHint describes rejected traffic, which is usually why no member was found.
func refusedHint(b BusStatus) string {
	for _, reason := range []string{"key", "label", "plaintext", "identity", "release"} {
		if n := b.Refused[reason]; n > 0 {
			return fmt.Sprintf("; %d rejected because of their %s: check that it is the same everywhere", n, reason)
		}
	}
	return ""
}
