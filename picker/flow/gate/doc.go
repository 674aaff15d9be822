// Package gate blocks requests until there is capacity. It runs one flow.Core for each pool of
// endpoints that serve the same base model, measures the pool's capacity, and wakes the goroutines
// of dispatched requests.
//
// The path of a request:
//
//  1. Gate.Enter offers it to the Core of its pool (gate.go), before rendering. If it has to
//     wait, its goroutine does so at a picker.QueueEntry (await.go).
//  2. A release, a change of capacity (capacity.go) or gauges of other replicas dispatch
//     requests. deliver wakes their goroutines after the lock is released.
//  3. Gate.Leave releases the permits when the response has ended.
//
// The capacity is the sum of the engines' concurrency: their own limit if it shows (the number of
// running requests while others wait), plus a small queue that keeps an engine busy between two
// dispatches. The load tracker of all replicas provides the number in use, and gauges correct it.
// If gauges cannot be read, the last capacity stays.
//
// Concurrency: Gate is safe for concurrent use. Run owns the only goroutine.
package gate
