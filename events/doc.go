// Package events reads engines' KV-cache event streams and turns them into
// deltas of the prefix index, so that the index says what each engine holds,
// and says how sure it is.
//
// The way of one event:
//
//  1. Manager.Set starts a subscriber for each source (endpoint and rank). Its
//     goroutine dials the engine's PUB socket and reads messages (zmtp).
//  2. Package order puts batches in sequence: it finds gaps, asks for replays, fills
//     their holes, and recognises an engine that has started again.
//  3. Package decode reads the msgpack batch, in any form that engines have
//     published, without allocating.
//  4. Package translate maps engine hashes and token ids to block keys and
//     appends operations to an block.Delta.
//  5. Index.Apply takes the delta; then Options.OnDelta may share it.
//
// What it does not do: it does not find endpoints, choose anything, persist
// anything, or keep tokens beyond the batch they came in (except fragments
// that wait for their parent, and pages smaller than a unit).
//
// Invariants: batches of one source are applied one at a time and in order; a
// state of Exact means that every batch from some point on is applied without
// a hole; everything that a publisher can make us keep has a bound, and
// everything malformed costs a counter, at worst its own connection.
//
// Concurrency: Manager's methods are safe for concurrent use, and Knowledge
// takes no lock.
package events
