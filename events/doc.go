// Package events reads engines' KV-cache event streams and turns them into deltas of the prefix
// index. It also reports how complete the index is for each engine.
//
// The path of one event:
//
//  1. Manager.Set starts a subscriber for each source (endpoint and rank). Its
//     goroutine connects to the engine's PUB socket and reads messages (zmtp).
//  2. Package order sequences batches: it detects gaps, requests replays, fills
//     gaps, and detects restarted engines.
//  3. Package decode parses the msgpack batch, in every format that engines have
//     published, without allocating.
//  4. Package translate maps engine hashes and token ids to block keys and
//     appends operations to a block.Delta.
//  5. Index.Apply applies the delta; then Options.OnDelta may share it.
//
// The package does not discover endpoints, persist anything, or keep tokens beyond their batch
// (except fragments that wait for their parent, and pages smaller than a unit).
//
// Invariants: batches of one source are applied one at a time and in order. State Exact means that
// every batch from some point on has been applied without a gap. Everything that a publisher can
// make the process store is bounded. Malformed data costs a counter, at worst the publisher's own
// connection.
//
// Manager's methods are safe for concurrent use. Knowledge takes no lock.
package events
