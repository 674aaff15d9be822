package server

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
)

// lastReplica reports whether all other replicas are gone, or leave too.
func lastReplica(node *cluster.Node) bool {
	peers, _ := node.Peers()
	return !slices.ContainsFunc(peers, func(p cluster.Peer) bool { return p.State == "up" && !p.Leaving })
}

// groupPrint identifies this replica's group: the lowest process id in it. It returns 0 without a
// group and while the group settles.
func groupPrint(node *cluster.Node, grouped bool) uint64 {
	if !grouped || node.Phase() == cluster.Settling {
		return 0
	}
	peers, _ := node.Peers()
	least := node.Self().ID
	for _, p := range peers {
		if p.State == "up" {
			least = min(least, p.ID)
		}
	}
	return max(xxhash.Sum64String(least), 1)
}

// queued returns the seconds until the queued requests of all replicas are admitted: the computed
// estimate, or the age of the oldest request without one.
func queued(queues []rules.Status) (seconds float64) {
	for _, q := range queues {
		if q.Backlog != nil {
			seconds = max(seconds, *q.Backlog)
			continue
		}
		for _, b := range q.Bands {
			seconds = max(seconds, b.OldestS)
		}
	}
	return seconds
}
