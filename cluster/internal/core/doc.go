// Package core is the decision logic of the cluster layer: a state machine without sockets, clocks,
// goroutines or locks, built on packages group and logs. It decides which frames to send to which
// member and which incoming data to accept. The same code runs in the server, driven by package
// cluster, and in the deterministic simulation of clustertest/sim.
//
// The main path:
//
//  1. The caller sets the time with Advance and passes in events: SetMembers, SetLink,
//     Receive, and the local calls of Gauge, Feed and Log.
//  2. Tick runs what is due: heartbeats, coalesced updates, digests, repairs, ownership.
//  3. Drain returns the frames to send; Deadline returns when to tick again.
//
// Three kinds of named state are shared:
//
//   - Gauge: absolute values per origin. The last writer wins per key, and only the origin
//     writes. Values are dropped with their origin.
//   - Feed: hints. Delivered at most once, never repaired.
//   - Log: the state of sources. Each source is a log with one writer outside of the group (an
//     engine). A member's knowledge is a Position in it; the furthest position wins.
//
// Invariants, each checked by clustertest/sim over thousands of seeds:
//
//   - A source's (incarnation, next) never moves back at a member.
//   - A position without losses is exact: the store holds the result of applying every earlier
//     delta once and in order.
//   - Memory is bounded: rings, pending deltas, loads, snapshots and queues all have limits.
//     Data above a limit is dropped, counted and repaired.
//   - Invalid frames change nothing and are counted.
//
// Core does not authenticate: the caller names the member that sent a frame and vouches for it.
// Core does not need ordered frames: loss, duplication and reordering cost time, not correctness.
//
// A Core is not safe for concurrent use. Frames and payloads passed in belong to the Core
// afterwards and must not be modified. Frames passed out may be kept and shared between receivers,
// and must not be modified either.
package core
