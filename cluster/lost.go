package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A member that went without a word is spoken of for this long, unless its
// name comes back before: whether it died or is behind a partition cannot be
// told from here. Where replicas get new names when they are started again, one
// that died never comes back, so this must not be long; a partition that
// lasts longer looks like a smaller group.
const (
	remember = 10 * time.Minute
	maxLost  = 64
)

// Lost is a member that membership gave up, and that did not say it would go:
// dead or cut off.
type Lost struct {
	Member
	For time.Duration `json:"for"`
}

// lostAt is a lost member and when membership gave it up.
type lostAt struct {
	Member
	at time.Duration
}

// noteLost compares the members to come with those known. Calls hold n.mu.
func (n *Node) noteLost(members []Member, now time.Duration) {
	n.forgetLost(now)
	listed := make(map[string]bool, len(members))
	for _, m := range members {
		listed[m.ID] = true
		delete(n.lost, cmp.Or(m.Name, m.ID))
	}
	for _, p := range n.core.Peers() {
		if !listed[p.Member.ID] && !p.Leaving && p.Met && len(n.lost) < maxLost && !named(members, p.Member.Name) {
			n.lost[p.Member.Name] = lostAt{p.Member, now}
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
		out = append(out, Lost{l.Member, now - l.at})
	}
	slices.SortFunc(out, func(a, b Lost) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
