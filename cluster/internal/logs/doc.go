// Package logs shares the state of sources. Each source is a log with one writer outside of the
// group, such as an engine's cache.
//
// The main path:
//
//  1. Append takes a delta that this member read, and flush pushes it to the members that do
//     not read the source themselves (merge.go).
//  2. Set.Receive handles frames. The next delta in sequence is applied; one that arrives too
//     early waits (ring.go).
//  3. Digests carry positions and checksums of content (digest.go). When a claim shows missing
//     or incorrect content, check fetches a range of deltas or a snapshot (repair.go). Peers
//     serve it (serve.go) and commit installs it (answers.go).
//  4. Roles divide the sources among the members (own.go).
//
// Invariants: (incarnation, next) of a source never moves back; a position without losses is exact;
// Options bound the memory held. cluster/DESIGN.md has the reasons.
//
// # Concurrency
//
// The package is pure. AppendNext, Deliver, Position and Fresh are safe for concurrent use; all
// other methods must be called one at a time. Those four touch only the content of one source
// (content.go) and take only that source's lock, which LogOptions.Guard makes. They record the
// follow-up work in the source and in a list that collect processes. Other methods lock one source
// at a time while they look at it (enter, leave). So the lock order is: the caller's lock, if any;
// the source's; the store's.
//
// Payloads are opaque bytes to this package.
package logs
