// Package approx estimates the part of a prompt that endpoints hold from the prompts sent to them.
//
//  1. Index.Keys cuts a raw prompt into chunks of a fixed number of bytes and
//     chains their keys.
//  2. Index.Record adds them for the endpoint of a request; the least recent ones
//     are evicted first (record.go, lru.go).
//  3. Index.Match walks the chunks and returns each candidate's leading run,
//     optionally of records since a given time: recent ones are the speculative
//     entries that bridge the time until events arrive.
//
// The package has no data about engines, tokens or evictions; callers report these through Truncate
// and SetCapacity. It has no clock and starts no goroutine.
//
// Invariants: an endpoint's chunks are bounded by its capacity. A chunk is never evicted before
// later chunks of its prompt. Equal calls give equal states.
//
// All methods are safe for concurrent use: chunks are in shards with separate locks.
package approx
