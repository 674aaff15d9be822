package events

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// Position is a place in an engine's log of batches. Positions of one source
// are ordered by Incarnation, then by Seq.
type Position struct {
	// Incarnation tells one life of the engine from the next; 0 when unknown.
	// It is set by SetIncarnation from what every reader of the same engine
	// can see, such as the start time in its metrics.
	Incarnation uint64
	// Seq is the last batch applied, plus one; 0 means none.
	Seq uint64
	// Sum is the hash of that batch's payload: the reference by which two
	// readers find out whether equal positions mean the same.
	Sum uint64
}

// Knowledge is what is known of one endpoint, the worst of its ranks.
type Knowledge struct {
	State knowledge.State
	// Complete tells that the cache has been followed since it was empty.
	// Otherwise blocks that were stored before the oldest replayable batch
	// may be missing from the index.
	Complete bool
	// Behind is the number of batches known to exist and not applied.
	Behind uint64
	// Lag is the age of the newest batch of the live stream when it was applied, by the
	// engine's clock and ours; while batches are missing it keeps growing.
	Lag time.Duration
	// Silent is the time since anything came from the engine.
	Silent time.Duration
}

// worse merges what is known of two ranks.
func (k Knowledge) worse(o Knowledge) Knowledge {
	return Knowledge{
		State:    min(k.State, o.State),
		Complete: k.Complete && o.Complete,
		Behind:   k.Behind + o.Behind,
		Lag:      max(k.Lag, o.Lag),
		Silent:   max(k.Silent, o.Silent),
	}
}
