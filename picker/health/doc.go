// Package health decides which endpoints may receive requests.
//
//  1. A [Tracker] watches the in-flight requests of one endpoint and counts their
//     results: in time, late, failed with an engine error, reset.
//  2. Its [Evidence], and the evidence of other replicas, is passed to [Set.Receive].
//  3. [Set.Step] advances each endpoint's state machine and returns the changes:
//     healthy → suspect → out → probing → returning → healthy.
//  4. [Set.Snapshot] returns, for each endpoint, the share of decisions in which it may
//     be a candidate, and its state with the evidence, for the picker and for
//     operators.
//
// Evidence is hard (connections are refused) or soft (everything else). Soft evidence is compared
// with the rest of the group and ignored when most of the group is no better, so that a shared
// fault never empties a pool. Refused connections keep an endpoint out as long as any other
// endpoint of the group is available.
//
// A full queue (429, or 503 from an engine with running requests) is not evidence; Tracker.SetFull
// records it separately. Client errors are not evidence either. A failure that follows one prompt
// from endpoint to endpoint counts against the prompt (see [Prompts]).
//
// [Overrun] estimates from the pool's answers how late is too late. [RetryLimit] limits the number of
// retried requests.
//
// The package reads no clock, starts no goroutine, logs nothing and does no I/O: time is an
// argument. A Set must be used by one goroutine. Tracker, Prompts, Overrun and RetryLimit are safe for
// concurrent use. A Snapshot is immutable.
package health
