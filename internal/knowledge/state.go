package knowledge

// State is the reliability of the data about a cache. Greater is better. An endpoint with several
// streams has the least State of its streams.
type State uint8

// States of knowledge.
const (
	// Unknown: no data.
	Unknown State = iota
	// Unreadable: messages arrive, but none can be decoded.
	Unreadable
	// Approximate: there is no event stream, it is not connected, or lost batches cannot be
	// replayed. Blocks evicted in lost batches may still be listed.
	Approximate
	// CatchingUp: a replay or another replica's snapshot is pending. The existing data is kept.
	CatchingUp
	// Mismatched: the events are applied, but they disagree with the cache hits that the engine
	// reports for prompts.
	Mismatched
	// Partial: every batch since some point is applied, in order. Blocks cached before that point
	// and unchanged since are missing.
	Partial
	// Exact: every batch since the cache was empty is applied, in order.
	Exact
	numStates
)

var names = [numStates]string{"unknown", "unreadable", "approximate", "catching-up", "mismatched", "partial", "exact"}

// String returns the state as users see it.
func (s State) String() string {
	if s < numStates {
		return names[s]
	}
	return names[Unknown]
}

// Followed reports whether events are applied up to now and are reliable: blocks listed as cached
// are cached.
func (s State) Followed() bool { return s >= Partial }
