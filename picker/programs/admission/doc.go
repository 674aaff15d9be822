// Package admission is the gate in front of the queue that admits agent runs by their use of memory
// (package programs). It adds a clock, a lock and metrics to the decisions.
//
//  1. Gate.Enter keeps a request while its program may not run, and then passes it to the next gate.
//  2. Gate.Place reports the footprint of a dispatched request.
//  3. Gate.Leave ends it, and admits the next ones.
//
// It starts no goroutine: kept requests poll.
//
// Concurrency: a Gate is safe for concurrent use.
package admission
