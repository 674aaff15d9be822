package core

// GaugeSink is told what other members' gauges are. Calls come one at a time
// and must not call back. value is retained by the caller: copy what is kept.
type GaugeSink interface {
	// Merge sets key of origin; a nil value removes it. version is the state
	// version that origin writes. An error counts and changes nothing else.
	Merge(origin string, version uint64, key string, value []byte) error
	// Drop forgets everything of origin.
	Drop(origin string)
}

// FeedSink is told what other members sent to a Feed.
type FeedSink interface {
	Deliver(origin string, version uint64, payload []byte) error
}
