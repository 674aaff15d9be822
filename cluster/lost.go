package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
)

// A member that vanished without leaving is named for this long, unless its
// name comes back before, or a new one comes, which is taken for its replacement:
// where replicas get new names when they are started again, one that died never comes
// back. A partition that lasts longer looks like a smaller group.
const (
	remember = 10 * time.Minute
	maxLost  = 64
)

// What comes from a lost member within lastWords was on its way when it died; what
// comes later counts for a while.
const (
	lastWords = 2 * time.Second
	heardFor  = 10 * time.Second
)

// Lost is a member that membership gave up, and that did not say it would go:
// dead or cut off.
type Lost struct {
	Member
	For time.Duration `json:"for"`
	// Heard says that something came from it a moment ago: it lives.
	Responsive bool `json:"heard"`
}

func (l *Lost) fate() string {
	if l.Responsive {
		return fmt.Sprintf("given up %s ago and still heard: cut off", l.For.Round(time.Second))
	}
	return fmt.Sprintf("vanished %s ago without leaving: dead or cut off", l.For.Round(time.Second))
}

// lostAt is a lost member and when membership gave it up.
type lostAt struct {
	Member
	at    time.Duration
	heard time.Duration // when it was heard last; 0 when never
}

// noteLost compares the members to come with those known. Calls hold n.mu.
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
		if _, back := n.lost[name]; back {
			delete(n.lost, name)
		} else if !known[m.ID] && !known[name] {
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
		if !replaced && !p.Leaving && p.Met && len(n.lost) < maxLost && !named(members, p.Member.Name) {
			n.lost[p.Member.Name] = lostAt{Member: p.Member, at: now}
		}
	}
}

// replace takes members that come for replacements of those that are down and not given
// up yet: replicas that are started again under new names may die faster than membership
// gives them up.
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

// longestLost returns the name of the member that was lost first.
func (n *Node) longestLost() (name string) {
	for other, l := range n.lost {
		if first, ok := n.lost[name]; !ok || l.at < first.at || (l.at == first.at && other < name) {
			name = other
		}
	}
	return name
}

// heardLost notes that something came from a member that is not listed. Calls hold n.mu.
func (n *Node) heardLost(id string, now time.Duration) {
	for name, l := range n.lost {
		if l.ID == id && now-l.at > lastWords {
			l.heard = now
			n.lost[name] = l
		}
	}
}

// forgetLost ends the memory of those who went long ago. Calls hold n.mu.
func (n *Node) forgetLost(now time.Duration) {
	maps.DeleteFunc(n.lost, func(_ string, l lostAt) bool { return now-l.at > remember })
}

func named(members []Member, name string) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return cmp.Or(m.Name, m.ID) == name })
}

// lostMembers returns who is lost, by name. Calls hold n.mu.
func (n *Node) lostMembers(now time.Duration) []Lost {
	n.forgetLost(now)
	var out []Lost
	for _, l := range n.lost {
		out = append(out, Lost{l.Member, now - l.at, l.heard > 0 && now-l.heard < heardFor})
	}
	slices.SortFunc(out, func(a, b Lost) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
