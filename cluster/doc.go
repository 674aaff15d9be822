// Package cluster discovers the other replicas and shares named states with them. State contents
// are opaque bytes to this package.
//
// The main path:
//
//  1. NewMember creates this process's identity. A Bus (gossip, natsbus, hub or None)
//     discovers other members and carries frames.
//  2. New makes a Node; Gauge, Feed, Direct and Log register states; Open joins.
//  3. Local changes (Gauge.Set, Feed.Send, Direct.Send, Log.Append) go through the state machine of package
//     core, which batches them and passes frames to the Bus.
//  4. At a peer the Bus delivers the frame, core merges it, and calls the state's sink or
//     store.
//  5. Heartbeats and digests reveal missing data. Ranges of deltas and paged snapshots are
//     fetched from a peer that has them.
//
// # States
//
// A Gauge holds absolute values per origin, such as in-flight load. Its values are dropped with
// their origin. A Feed carries hints that are useless when late, such as speculative entries. A Direct
// carries messages to single members, such as pages of a file that the receiver requested. A Log
// shares the state of sources that have one writer outside of the group, such as an engine's cache.
//
// Adding a state takes a page of code: see the example of Node.Gauge.
//
// # Ownership
//
// With ShareMesh every replica reads every source. With SharePartitioned, the sources of an owned
// Log are divided by rendezvous hashing of the members' names. Members in a source's zone rank
// before others (Member.Zone, Log.SetZones). The second in rank order is the standby. Each member
// applies these rules locally:
//
//   - The first reachable member reads. A lower-ranked reader continues until the first reports
//     that it reads. The overlap is harmless, because deltas already covered are ignored.
//   - A leaving member ranks last and continues until another reads.
//   - If no reachable member has read a source for a second, the next in rank order reads it,
//     after two seconds the one after that. So an owner that is unreachable, or that cannot
//     reach the engine, costs a second.
//   - The first reader publishes to the members that do not read.
//
// # Non-goals
//
// There is no leader, no consensus and no durable state. The package does not retry feeds, does not
// order writes of different members, and never blocks its callers on a peer. A slow peer fetches
// missed data later.
//
// # Concurrency
//
// A Node is safe for concurrent use. Sinks of gauges and feeds are called one at a time, under the
// Node's lock. A LogStore is called under the lock of one source. So writes of one source wait
// neither for those of another nor for other operations of the Node. The lock order is: the Node's,
// a source's, the store's own. Stores and sinks must not call the Node.
package cluster
