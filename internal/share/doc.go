// Package share is what the replicas of a group tell each other of what engines hold:
// one prefix index, read from the engines' streams by whoever is nearest and known to
// all. Package facts below it has what replicas tell of themselves. The cluster package
// carries the bytes; this one knows what they mean.
//
// The way of one event batch:
//
//  1. The events package reads it from an engine's stream and hands over a delta.
//  2. Index.onDelta encodes it (codec.go, short.go) and appends it to the group's log.
//  3. The log calls store.Apply, here and at every other member, which changes the
//     prefix index.
//
// Which streams this replica reads, and whether what it reads is shared, is decided
// per stream (package plan).
//
// What it does not do: it does not find members or carry frames (cluster), decode
// engines' events (events), or choose endpoints (picker).
//
// Concurrency: all exported methods are safe for concurrent use unless they say
// otherwise. Nothing starts a goroutine but the methods named Run and OpenIndex.
package share
