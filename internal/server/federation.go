package server

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
)

// openFederation joins the configured federation of clusters, if any.
func (s *Server) openFederation() (err error) {
	grouped := s.o.Cluster.enabled()
	s.federation, err = multicluster.Open(s.o.Federation, multicluster.Replica{
		Name: s.o.Name, Pool: s.pool, Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("federation"),
		Connections: s.listeners.Part(8),
		Group: func() (others, turn int) {
			if !grouped {
				return 0, 0
			}
			peers, _ := s.node.Peers()
			return len(peers), s.Rank()
		},
		Last:   func() bool { return s.settled.Load() && (!grouped || s.lastReplica()) },
		Print:  s.groupPrint,
		Queued: s.queued,
		Unready: func() string {
			if s.ready() || s.empty() || s.draining.Load() && s.settled.Load() { // a draining replica answers until Leave
				return ""
			}
			return "this replica is not ready"
		},
	})
	if err == nil && grouped && s.federation.TracksHotPrompts() {
		s.federation.Share(facts.Of(s.node).Feed(multicluster.Feed, facts.StateVersion, s.federation))
	}
	return err
}

// lastReplica reports whether all other replicas are gone, or leave too.
func (s *Server) lastReplica() bool {
	peers, _ := s.node.Peers()
	return !slices.ContainsFunc(peers, func(p cluster.Peer) bool { return p.State == "up" && !p.Leaving })
}

// groupPrint identifies this replica's group: the lowest process id in it. It returns 0 without a
// group and while the group settles.
func (s *Server) groupPrint() uint64 {
	if !s.o.Cluster.enabled() || s.node.Phase() == cluster.Settling {
		return 0
	}
	peers, _ := s.node.Peers()
	least := s.node.Self().ID
	for _, p := range peers {
		if p.State == "up" {
			least = min(least, p.ID)
		}
	}
	return max(xxhash.Sum64String(least), 1)
}

// queued returns the seconds until the queued requests of all replicas are admitted: the computed
// estimate, or the age of the oldest request without one.
func (s *Server) queued() (seconds float64) {
	for _, q := range s.gate.Status() {
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
