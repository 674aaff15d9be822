// Package core is the cluster layer's brain: a state machine without sockets,
// clocks, goroutines or locks, made of packages wire, group and logs. It decides what to tell which member and
// what to believe of what members say. The same code runs in the daemon, where
// package cluster feeds it, and in the deterministic simulation of clustertest/sim.
//
// The main path:
//
//  1. The caller moves time with Advance and hands in what happened:
//     SetMembers, SetLink, Receive, and the local calls of Gauge, Feed and Log.
//  2. Tick does what is due: heartbeats, coalesced updates, digests, repairs,
//     ownership.
//  3. Drain returns the frames to be sent; Deadline says when to tick again.
//
// Three kinds of named state are shared:
//
//   - Gauge: absolute values per origin. The last writer wins per key, and only
//     the origin writes. They vanish with their origin.
//   - Feed: hints. Delivered at most once, never repaired.
//   - Log: what is known of sources, each a log with one writer outside of the
//     group (an engine). Knowledge is a Position in it; the furthest wins.
//
// Invariants, each checked by clustertest/sim over thousands of seeds:
//
//   - A source's (incarnation, next) never moves back at a member.
//   - A position with nothing lost is exact: the store holds what applying every
//     delta before it, once and in order, gives.
//   - Memory is bounded: rings, pending deltas, loads, snapshots and queues all
//     have limits, and what exceeds them is dropped, counted and repaired.
//   - Frames that cannot be right change nothing and are counted.
//
// It does not authenticate: the caller says from which member a frame came, and
// must know. It does not order frames: loss, duplication and reordering cost
// time, not correctness.
//
// A Core is not safe for concurrent use. Frames and payloads handed in belong
// to the Core afterwards and must not be modified; frames handed out may be
// kept, shared between receivers, and must not be modified either.
package core
