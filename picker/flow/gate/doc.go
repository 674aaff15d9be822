// Package gate is where requests wait for capacity: it runs one flow.Core for each
// pool of endpoints that serve the same base model, measures what the pool can take,
// and wakes the goroutines of requests that may go.
//
// The way of one request:
//
//  1. Gate.Wait offers it to the Core of its pool (gate.go). Nothing of it is rendered
//     yet.
//  2. A release, a change of capacity (capacity.go) or news of other replicas lets
//     requests go; deliver wakes their goroutines, after the lock is given back.
//  3. Gate.Leave gives back the place when the answer has ended.
//
// Capacity is the sum of what engines run at the same time: their own limit where they
// show it (the number that they run while others wait in them), plus the little queue
// that an engine needs not to idle between two placements. The book of all replicas
// says how much of it is in use; gauges correct it, and when they cannot be read the
// last capacity stays.
//
// Concurrency: Gate is safe for concurrent use. Run owns the only goroutine.
package gate
