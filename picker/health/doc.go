// Package health decides which endpoints can be trusted with requests.
//
//  1. A Tracker watches the requests in flight at one endpoint and counts how
//     they end: in time, late, with an error of the engine, with a reset.
//  2. Its Evidence, and that of the other replicas, goes into a Set by Receive.
//  3. Step moves each endpoint's state machine on and returns what changed:
//     healthy → suspect → out → probing → returning → healthy.
//  4. Snapshot returns, for each endpoint, the share of decisions in which it may
//     be a candidate, and the state with its evidence, for the picker and for
//     people.
//
// Evidence is hard (connections are refused) or soft (everything else). Soft
// evidence is weighed against what the rest of the group shows, and ignored
// where most of the group is no better: a pool is never emptied because of a
// fault that all endpoints share. Refused connections keep an endpoint out as
// long as any endpoint of the group is left.
//
// A full queue (429, or 503 by an engine that has work) is not evidence:
// Tracker.SetFull notes it apart. What clients do wrong is none either, and a
// failure that follows one prompt from endpoint to endpoint is counted against
// the prompt (Prompts).
//
// How late is late, an Overrun learns from the pool's answers. How many requests may be
// tried a second time, Again counts.
//
// Nothing here reads a clock, starts a goroutine, logs or does I/O: time is an
// argument. A Set is used by one goroutine; Tracker, Prompts, Overrun and Again are
// safe for concurrent use; a Snapshot is immutable.
package health
