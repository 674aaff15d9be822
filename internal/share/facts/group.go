package facts

import (
	"github.com/grapevine-epp/grapevine/cluster"
)

// Group is the interface to the group: a replica's cluster.Node, or a simulated group in virtual
// time.
type Group struct {
	// Gauge registers a state of absolute values; set changes this replica's values.
	Gauge func(name string, version uint64, sink cluster.GaugeSink) (set SetFunc)
	// Pulse is Gauge, but set also sends unchanged values, for sinks that need to see that a value
	// still holds.
	Pulse func(name string, version uint64, sink cluster.GaugeSink) (set SetFunc)
	// Feed registers a state of hints; send returns false if a hint was dropped.
	Feed func(name string, version uint64, sink cluster.FeedSink) (send SendFunc)
	// Direct registers a state of messages to single members; send returns false if the member is not
	// reachable.
	Direct func(name string, version uint64, sink cluster.DirectSink) (send SendToFunc)
}

// Functions that change states.
type (
	// SetFunc is cluster.Gauge.Set, or Renew.
	SetFunc func(key string, value []byte) error
	// SendFunc is cluster.Feed.Send.
	SendFunc func(payload []byte) bool
	// SendToFunc is cluster.Direct.Send.
	SendToFunc func(member string, payload []byte) bool
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
		Direct: func(name string, version uint64, sink cluster.DirectSink) SendToFunc {
			return n.Direct(name, version, sink).Send
		},
	}
}

// Names and version of the shared states. An encoding that older replicas cannot read gets a new
// name. Otherwise fields are only appended.
const (
	stateLoad     = "load"
	stateCost     = "cost"
	stateChunks   = "chunks"
	stateSessions = "sessions"
	stateVerdicts = "verdicts"
	stateSplits   = "splits"
	stateSetup    = "setup"
	stateQueues   = "queues"
	stateAnswers  = "queueanswers"

	stateDecisions = "decisions"
	stateFiles     = "modelfiles"
	statePages     = "modelpages"

	// StateHealth is each replica's observations of the endpoints' health.
	StateHealth = "health"
	// StateReplicas is the address of each replica's ext_proc service, and its lateness.
	StateReplicas = "replicas"
	// StateVersion is the version of all gauges and feeds.
	StateVersion = 1
)
