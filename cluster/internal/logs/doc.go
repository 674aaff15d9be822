// Package logs shares what is known of sources, each of which is a log with
// one writer outside of the group, such as an engine's cache.
//
// The main path:
//
//  1. Append takes a delta that this member read, and flush pushes it to the
//     members that do not read the source themselves (merge.go).
//  2. Set.Receive takes frames. A delta that is next is applied; one that comes
//     too early waits (ring.go).
//  3. Digests tell positions and sums of content (digest.go). A claim that
//     shows something missing or wrong makes check fetch a range of deltas or
//     a snapshot (repair.go), which others serve (serve.go) and commit takes
//     over (answers.go).
//  4. Roles divide the sources among the members (own.go).
//
// Invariants: (incarnation, next) of a source never moves back; a position
// with nothing lost is exact; what is held is bounded by Options. See
// cluster/DESIGN.md for the reasons.
//
// # Concurrency
//
// Pure, and all methods but these are to be called one at a time: AppendNext, Deliver,
// Position and Fresh may be called at any time. They touch nothing but the content of one
// source (content.go) and take no lock but that source's, which LogOptions.Guard makes.
// What their writes mean for the rest of the log is noted in the source and in a list that
// collect works off. Other methods lock one source at a time while they look at it (enter,
// leave). So the order of locks is: the caller's, if it has one; the source's; the store's.
//
// It knows bytes, not what they mean.
package logs
