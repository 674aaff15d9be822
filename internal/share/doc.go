// Package share shares the precise prefix index among the replicas of a group. Each engine's event
// stream is read by one replica, preferably a near one, and its content is replicated to all.
// Subpackage facts shares the state of the replicas themselves. Package cluster transports the
// bytes; this package encodes and decodes them.
//
// The path of an event batch:
//
//  1. Package events reads it from an engine's stream and produces a delta.
//  2. Index.onDelta encodes it (codec.go, short.go) and appends it to the group's log.
//  3. The log calls store.Apply on every member, including this one, which updates the prefix
//     index.
//
// Package plan decides per stream whether this replica reads it and whether it is shared.
//
// The package does not discover members or carry frames (cluster), decode engine events (events),
// or choose endpoints (picker).
//
// Concurrency: all exported methods are safe for concurrent use unless noted otherwise. Only
// OpenIndex and the methods named Run start goroutines.
package share
