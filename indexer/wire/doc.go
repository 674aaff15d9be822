// Package wire encodes what replicas tell each other of a prefix index.
//
//  1. AppendDelta and DecodeDelta are the long form of a change, which stands alone
//     (codec.go).
//  2. AppendShort and DecodeShort are the short form, for those who hold what the
//     writer held: known blocks by four bytes of their name, parents by how many stores
//     ago they came, for which both keep Tails (short.go, short_decode.go, tails.go).
//  3. Snapshot puts all that a source holds into pages of the long form (pager.go).
//  4. AppendKeys and DecodeKeys carry the chunk keys of a decision (keys.go).
//
// Invariants: decoding an encoding gives the same change; any input is safe, and what
// is allocated is bounded by its length. DESIGN.md beside the index has the layouts.
//
// Nothing here has state of its own but Tails and Snapshot, which belong to one
// goroutine at a time.
package wire
