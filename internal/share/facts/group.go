package facts

import (
	"github.com/grapevine-epp/grapevine/cluster"
)

// Group is what parts share through: a replica's cluster.Node, or the group of a
// simulation in virtual time.
type Group struct {
	// Gauge registers a state of absolute values; set changes this replica's.
	Gauge func(name string, version uint64, sink cluster.GaugeSink) (set SetFunc)
	// Pulse is Gauge for values whose sink wants to hear that they hold: set tells the
	// others also what has not changed.
	Pulse func(name string, version uint64, sink cluster.GaugeSink) (set SetFunc)
	// Feed registers a state of hints; send is false when a hint was dropped.
	Feed func(name string, version uint64, sink cluster.FeedSink) (send SendFunc)
}

// How states are changed.
type (
	// SetFunc is cluster.Gauge.Set, or Renew.
	SetFunc func(key string, value []byte) error
	// SendFunc is cluster.Feed.Send.
	SendFunc func(payload []byte) bool
)

// Of returns the group of a node that is not open yet.
func Of(n *cluster.Node) Group {
	return Group{
		Gauge: func(name string, version uint64, sink cluster.GaugeSink) SetFunc {
			return n.Gauge(name, version, sink).Set
		},
		Pulse: func(name string, version uint64, sink cluster.GaugeSink) SetFunc {
			return n.Gauge(name, version, sink).Renew
		},
		Feed: func(name string, version uint64, sink cluster.FeedSink) SendFunc {
			return n.Feed(name, version, sink).Send
		},
	}
}

// Names and version of the shared states. A change of an encoding that older
// replicas cannot read gets a new name; fields are only ever appended.
const (
	stateLoad     = "load"
	stateCost     = "cost"
	stateChunks   = "chunks"
	stateSessions = "sessions"
	stateVerdicts = "verdicts"
	stateSetup    = "setup"
	stateQueues   = "queues"
	stateAnswers  = "queueanswers"

	// StateHealth is what each replica has seen of the endpoints' health.
	StateHealth = "health"
	// StateReplicas is where each replica's ext_proc service is.
	StateReplicas = "replicas"
	// StateVersion is the version of all gauges and feeds.
	StateVersion = 1
)
