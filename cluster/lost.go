package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
)

// A member that vanished without leaving is reported for this long, unless its name returns or a
// new member joins. A new member counts as its replacement, because in some deployments restarted
// replicas get new names. A longer partition looks like a smaller group.
const (
	remember = 10 * time.Minute
	maxLost  = 64
)

// Frames from a lost member within lastWords were in transit when it died. Later ones count as
// evidence of life for sendingFor.
const (
	lastWords  = 2 * time.Second
	sendingFor = 10 * time.Second
)

// Lost is a member that membership removed without a goodbye: crashed or cut off.
type Lost struct {
	Member
	For time.Duration `json:"for"`
	// Responsive means that a frame of the member arrived recently, so it is alive.
	Responsive bool `json:"heard"`
}

func (l *Lost) fate() string {
	if l.Responsive {
		return fmt.Sprintf("given up %s ago and still heard: cut off", l.For.Round(time.Second))
	}
	return fmt.Sprintf("vanished %s ago without leaving: dead or cut off", l.For.Round(time.Second))
}

// lostAt is a lost member and the time at which membership removed it.
type lostAt struct {
	Member
	at        time.Duration
	lastFrame time.Duration // time of its last frame; 0 if none
}

// noteLost compares the new list of members with the known peers. The caller holds n.mu.
func (n *Node) noteLost(members []Member, now time.Duration) {
	n.forgetLost(now)
	peers := n.core.Peers()
	known := map[string]bool{n.opt.Self.ID: true, n.opt.Self.Name: true}
	for _, p := range peers {
		known[p.Member.ID], known[p.Member.Name] = true, true
	}
	listed := make(map[string]bool, len(members))
	fresh := 0
	for _, m := range members {
		listed[m.ID] = true
		name := cmp.Or(m.Name, m.ID)
		if _, back := n.lost[name]; !back && !known[m.ID] && !known[name] {
			fresh++
		}
	}
	for ; fresh > 0 && len(n.lost) > 0; fresh-- {
		delete(n.lost, n.longestLost())
	}
	n.replace(peers, fresh)
	for _, p := range peers {
		if listed[p.Member.ID] {
			continue
		}
		replaced := n.replaced[p.Member.ID]
		delete(n.replaced, p.Member.ID)
		if p.Met {
			delete(n.lost, p.Member.Name) // it had returned
		}
		if !replaced && !p.Leaving && p.Met && len(n.lost) < maxLost && !named(members, p.Member.Name) {
			n.lost[p.Member.Name] = lostAt{Member: p.Member, at: now}
		}
	}
}

// replace counts fresh members as replacements of peers that are down but still listed. Replicas
// that restart under new names may crash faster than membership removes them.
func (n *Node) replace(peers []core.PeerView, fresh int) {
	for _, p := range peers {
		switch id := p.Member.ID; {
		case peerState(p) != "down":
			delete(n.replaced, id) // it is back
		case fresh > 0 && p.Met && !n.replaced[id]:
			n.replaced[id] = true
			fresh--
		}
	}
}

// longestLost returns the name of the member lost first.
func (n *Node) longestLost() (name string) {
	for other, l := range n.lost {
		if first, ok := n.lost[name]; !ok || l.at < first.at || (l.at == first.at && other < name) {
			name = other
		}
	}
	return name
}

// noteFrame records a frame from an unlisted member. The caller holds n.mu.
func (n *Node) noteFrame(id string, now time.Duration) {
	for name, l := range n.lost {
		if l.ID == id && now-l.at > lastWords {
			l.lastFrame = now
			n.lost[name] = l
		}
	}
}

// forgetLost drops members lost long ago. The caller holds n.mu.
func (n *Node) forgetLost(now time.Duration) {
	maps.DeleteFunc(n.lost, func(_ string, l lostAt) bool { return now-l.at > remember })
}

func named(members []Member, name string) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return cmp.Or(m.Name, m.ID) == name })
}

// lostMembers returns the lost members that are not listed, by name. A lost member that is listed
// again stays lost until it is reached: membership may remove it before. The caller holds n.mu.
func (n *Node) lostMembers(now time.Duration) []Lost {
	n.forgetLost(now)
	listed := map[string]bool{}
	for _, p := range n.core.Peers() {
		listed[p.Member.Name] = true
		if p.Met {
			delete(n.lost, p.Member.Name)
		}
	}
	var out []Lost
	for _, l := range n.lost {
		if listed[l.Name] {
			continue
		}
		out = append(out, Lost{l.Member, now - l.at, l.lastFrame > 0 && now-l.lastFrame < sendingFor})
	}
	slices.SortFunc(out, func(a, b Lost) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
