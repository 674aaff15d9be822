package events

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// Position is a position in an engine's log of batches. Positions of one source are ordered by
// Incarnation, then by Seq.
type Position struct {
	// Incarnation identifies one run of the engine; 0 when unknown. SetIncarnation derives it from
	// data that every reader of the engine sees, such as the start time in its metrics.
	Incarnation uint64
	// Seq is the last batch applied, plus one; 0 means none.
	Seq uint64
	// Sum is the hash of that batch's payload, by which two readers verify that equal positions
	// refer to the same batch.
	Sum uint64
}

// Knowledge is the state of one endpoint's index data, the worst of its ranks.
type Knowledge struct {
	State knowledge.State
	// Complete means that the cache has been followed since it was empty. Otherwise blocks stored
	// before the oldest replayable batch may be missing.
	Complete bool
	// Behind is the number of known batches that are not applied yet.
	Behind uint64
	// Lag is the age of the newest live batch when it was applied, by the engine's clock and ours.
	// It grows while batches are missing.
	Lag time.Duration
	// Silent is the time since the last message from the engine.
	Silent time.Duration
}

// worse combines the states of two ranks.
func (k Knowledge) worse(o Knowledge) Knowledge {
	return Knowledge{
		State:    min(k.State, o.State),
		Complete: k.Complete && o.Complete,
		Behind:   k.Behind + o.Behind,
		Lag:      max(k.Lag, o.Lag),
		Silent:   max(k.Silent, o.Silent),
	}
}
