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
// Pure, and not safe for concurrent use. It knows bytes, not what they mean.
package logs
