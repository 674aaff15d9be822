// Package order puts the batches of one event stream in sequence: what to apply, when to
// ask for a replay, when the engine is another one, and how far what was applied can be
// trusted.
//
// It knows sequence numbers and payloads, and nothing of what is in them: no clock,
// socket, index or translation. An [Order] is told what happens, and answers with
// [Action]s that its owner carries out in turn before it tells the next thing.
// DESIGN.md of package events has the rules.
//
// Concurrency: none; its owner has the lock.
package order
