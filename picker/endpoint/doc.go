// Package endpoint owns what is known of the endpoints of a pool: who is in it,
// what each has in flight, what its engine reports, and what it costs.
//
//  1. Discovery calls [Pool.Set] with [Spec]s. Each address gets a small dense
//     id, which it keeps until it leaves, and a new [Snapshot] replaces the old.
//  2. A decision reads one Snapshot: of each [Endpoint] the [Load] (of all
//     replicas), the [Reading] of its gauges and its learned [Cost].
//  3. A placed request opens a [Ticket] in the [Book]; the response path moves
//     it on and releases it.
//  4. First tokens and steps teach the constants ([Pool.LearnPrefill],
//     [Pool.LearnStep]).
//
// It chooses nobody, speaks no protocol, does no I/O and starts no goroutine.
// Other replicas' parts come in by [Book.SetRemote] and SetRemoteCost; own
// changes go out by [Book.OnChange].
//
// Invariants: a snapshot never changes; the book's local part returns to zero
// when every ticket is released; an id is not used again before its grace time
// is over. Everything is safe for concurrent use.
package endpoint
