// Package flow queues requests while the pool is full and dispatches them in order: by priority,
// then fairly among flows, then by the flow's own order. The replicas of a group act as one queue.
//
// The path of a request:
//
//  1. Gate.Enter offers it to the Core of its pool, before its prompt is rendered.
//  2. Core.Offer dispatches it immediately if no request is ahead of it and there is room
//     (room.go). Otherwise it joins its flow (band.go), or is refused at a limit.
//  3. A release, or a change of the capacity or of other replicas' gauges, calls pump, which
//     gives permits to the heads of flows until none is left.
//  4. Gate.Leave returns the permits when the response has ended.
//
// Core.Reconfigure changes the rules for waiting and in-flight requests.
//
// A permit is the unit of a pool's capacity. Replicas dispatch without asking each other. Each
// publishes how many permits its flows hold and wait for (Gauge). Each computes every flow's fair
// share of all permits from the same sums, and takes its own part. A replica that runs short
// requests acknowledgments of its gauges (Mark, Echo) and takes what the others leave. The permits
// of a silent replica stay accounted for, because its requests still run in the engines, but it
// gets no new ones.
//
// The package does not choose endpoints (picker), measure engines (picker/scrape), or transport
// gauges (internal/share).
//
// Invariants: a request ends in exactly one Outcome (a dispatched one may be Evicted afterwards).
// Waiting requests never exceed the limits. Permits in flight exceed the capacity only by changes
// within the gauges' travel time.
//
// Concurrency: Core is a state machine without a clock, locks or goroutines, for one goroutine at a
// time. Gate adds these and is safe for concurrent use.
package flow
