package core

// GaugeSink receives other members' gauges. Calls come one at a time and must not call back. The
// caller retains value, so copy it to keep it.
type GaugeSink interface {
	// Merge sets key of origin; a nil value removes it. version is the state version that origin
	// writes. An error is counted and has no other effect.
	Merge(origin string, version uint64, key string, value []byte) error
	// Drop removes all entries of origin.
	Drop(origin string)
}

// DirectSink receives the messages that other members sent to this one. Calls come one at a time and
// must not call back. The caller retains payload, so copy it to keep it.
type DirectSink interface {
	Deliver(origin string, version uint64, payload []byte) error
}

// FeedSink receives the payloads that other members sent to a Feed.
type FeedSink interface {
	Deliver(origin string, version uint64, payload []byte) error
}
