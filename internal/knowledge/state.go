package knowledge

// State says how far what is known of a cache can be trusted. Greater is
// better: of several streams of one endpoint the least State counts.
type State uint8

// States of knowledge.
const (
	// Unknown: nothing is known.
	Unknown State = iota
	// Unreadable: messages come, and none of them can be read.
	Unreadable
	// Approximate: there is no event stream, it is not connected, or batches were lost
	// between others that nobody has any more: what they let go of may still be listed.
	Approximate
	// CatchingUp: a replay or another replica's answer is awaited. What is known
	// so far is kept.
	CatchingUp
	// Mismatched: the events are followed, but what they say is not what prompts
	// find at the engine.
	Mismatched
	// Partial: every batch since some point is applied, in order. What was cached
	// before and has not changed since is missing.
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

// Followed reports whether events are followed up to now and are to be believed:
// what they say is cached is cached.
func (s State) Followed() bool { return s >= Partial }
