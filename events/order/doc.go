// Package order sequences the batches of one event stream: it decides what to apply, when to
// request a replay, when the engine was replaced, and how reliable the applied data is.
//
// It sees only sequence numbers and payload hashes: no clock, socket, index or translation. The
// owner of an [Order] reports each event and executes the returned [Action]s in order before it
// reports the next one. DESIGN.md of package events has the rules.
//
// An Order is not safe for concurrent use; its owner locks it.
package order
