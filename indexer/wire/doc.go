// Package wire encodes the prefix index data that replicas exchange.
//
//  1. AppendDelta and DecodeDelta are the self-contained long form of a change
//     (codec.go).
//  2. AppendShort and DecodeShort are the short form, for readers with the writer's
//     state: known blocks by four bytes of their name, parents by how many stores
//     ago they were stored, for which both sides keep Tails (short.go,
//     short_decode.go, tails.go).
//  3. Snapshot splits a source's blocks into pages of the long form (snapshot.go).
//  4. AppendKeys and DecodeKeys encode the chunk keys of a decision (keys.go).
//
// Invariants: decoding an encoding gives the same change. Any input is safe, and allocations are
// bounded by its length. DESIGN.md of the index has the layouts.
//
// Only Tails and Snapshot have state; each must be used by one goroutine at a time.
package wire
