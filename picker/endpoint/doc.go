// Package endpoint holds the state of a pool's endpoints: membership, in-flight load, engine
// gauges, and learned costs.
//
//  1. Discovery calls [Pool.Set] with [Spec]s. Each address gets a small dense
//     id, which it keeps until it leaves, and a new [Snapshot] replaces the old one.
//  2. A decision reads one Snapshot: for each [Endpoint] the [Load] (of all
//     replicas), the [Reading] of its gauges and its learned [Cost].
//  3. A dispatched request opens a [Ticket] in the [LoadTracker]; the response path
//     updates and releases it.
//  4. First tokens and steps train the constants ([Pool.LearnPrefill],
//     [Pool.LearnStep]).
//
// The package chooses no endpoint, implements no protocol, does no I/O and starts no goroutine. The
// other replicas' data arrives through [LoadTracker.SetRemote] and SetRemoteCost; local changes are
// reported by [LoadTracker.OnChange].
//
// Invariants: a snapshot never changes; the local load returns to zero when every ticket is
// released; an id is not reused before its grace time has passed. Everything is safe for concurrent
// use.
package endpoint
