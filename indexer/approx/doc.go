// Package approx guesses what endpoints hold of a prompt from what was sent to them.
//
//  1. Index.Keys cuts a raw prompt into chunks of a fixed number of bytes and
//     chains their keys.
//  2. Index.Record enters them for the endpoint that a request goes to, the latest
//     first to stay (record.go, lru.go).
//  3. Index.Match walks the chunks and reports each candidate's leading run, of
//     records since a moment if wanted: those of the last seconds are the
//     speculative entries that bridge the time until events come.
//
// It knows nothing of engines, tokens or evictions; Truncate and SetCapacity are how
// others tell it. It has no clock and starts nothing.
//
// Invariants: an endpoint's chunks are bounded by its capacity; a chunk is never
// forgotten before those that follow it in a prompt; equal calls give equal states.
//
// All methods may be called concurrently: chunks lie in shards with locks of their own.
package approx
