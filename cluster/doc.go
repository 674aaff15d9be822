// Package cluster finds the other replicas and shares named states with them.
// It knows bytes, not prefixes.
//
// The main path:
//
//  1. NewMember makes this process's identity; a Bus (gossip, natsbus, hub or
//     None) finds the others and carries frames.
//  2. New makes a Node; Gauge, Feed and Log register states; Open joins.
//  3. Local changes (Gauge.Set, Feed.Send, Log.Append) go through the state
//     machine of package core, which batches them and hands frames to the Bus.
//  4. At a peer the Bus delivers the frame, core merges it, and the state's
//     sink or store is told.
//  5. Heartbeats and digests show what is missing; ranges of deltas and paged
//     snapshots are fetched from whoever has them.
//
// # States
//
// A Gauge holds absolute values per origin, such as the in-flight book; it
// vanishes with its origin. A Feed carries hints that are worth nothing late,
// such as speculative entries. A Log shares what is known of sources that have
// one writer outside of the group, such as an engine's cache.
//
// Adding a state takes a page of code: see the example of Node.Gauge.
//
// # Ownership
//
// With ShareMesh every replica reads every source. With SharePartitioned the
// sources of an owned Log are divided by rendezvous hashing of the members'
// names, members of a source's zone before others (Member.Zone, Log.SetZones); the
// second in line stands by. The rules, all local:
//
//   - The first of those reachable reads. Who reads and is not first goes on
//     until the first says that it reads: an overlap is harmless, since a
//     position already reached is ignored.
//   - Who leaves is last in line, and goes on until another reads.
//   - A source that nobody reachable reads for a second is read by the next in
//     line, for two seconds by the one after: an owner that cannot be reached,
//     or cannot reach the engine, costs a second.
//   - The first of those who read publishes, to those who do not.
//
// # What it does not do
//
// There is no leader, no consensus and nothing durable. It does not retry
// feeds, does not order members' writes against each other, and never blocks
// its callers on a peer: what a slow peer misses, it fetches later.
//
// # Concurrency
//
// A Node is safe for concurrent use. Gauges' and feeds' sinks are called one at a time,
// under the Node's lock. A LogStore is called for one source at a time, under the lock of
// that source: writes of one source wait neither for those of another nor for anything that
// the Node does. Locks are taken in this order: the Node's, a source's, the store's own.
// Stores and sinks must not call the Node.
package cluster
