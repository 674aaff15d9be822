// Package poolbus lets the pools of one process share the connection to the other replicas. Each pool
// has its own cluster.Node with its own cluster.Bus, a Part. All parts use one Bus of the process, so
// that one group has one port, one label and one key, however many pools it serves.
//
//  1. Open joins the group.
//  2. Part returns the Bus of one pool. Its frames carry the pool's name in front (wire.go).
//  3. A frame from a peer goes to the part of its pool, and nowhere else. Frames of pools that this
//     process does not serve are dropped and counted.
//  4. Replicas announce the pools that they serve, after each change and every second. A part lists
//     only the members that serve its pool, so a pool never waits for a replica that does not have
//     it.
//
// The package does not know what frames mean. Frames of one pool can delay frames of another in the
// queue of the process's Bus, which is bounded. The pool's Node repairs frames that are dropped there.
//
// All methods are safe for concurrent use.
package poolbus
