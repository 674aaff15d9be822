// Package flow holds requests back while the pool is full, and lets them go in the
// right order: by priority, then fairly by flow, then by the flow's own order. The
// replicas of a group act as one queue.
//
// The way of one request:
//
//  1. Gate.Wait offers it to the Core of its pool, before its prompt is rendered.
//  2. Core.Offer lets it go at once when nothing is ahead of it and there is room
//     (room.go); else it joins its flow (band.go), or is refused at a limit.
//  3. A release, a change of capacity or of what other replicas tell calls pump, which
//     hands places to the heads of flows until none is left.
//  4. Gate.Leave gives the place back when the answer has ended.
//
// Core.Reconfigure changes the rules of what waits and of what is in flight.
//
// A place is what one request takes of the pool's capacity. Nobody asks other replicas
// before letting a request go: each tells how many places its flows hold and wait for
// (Gauge), computes every flow's fair share of all places from the same sums, and takes
// its part of it; one that runs short asks what the others have heard of it (Mark, Echo),
// and takes what they leave. A replica that falls silent keeps its places in the account (its
// requests run on in the engines) and loses its claim to new ones.
//
// What it does not do: it does not choose endpoints (picker), measure engines
// (picker/scrape), or carry gauges (internal/share).
//
// Invariants: a request ends in exactly one Outcome (one that was dispatched may be
// Evicted after that); what waits never exceeds the
// limits; places in flight exceed the capacity only by what changed within the time
// that gauges take.
//
// Concurrency: Core is a state machine for one goroutine at a time: no clock, lock or
// goroutine. Gate wraps one with both and is safe for concurrent use.
package flow
