// Package plan decides about one event stream of an engine: whether this replica
// reads it, whether what is read is shared with the group, and under which
// incarnation of the engine. It is a state machine without clock, goroutine, lock
// or log: what happened and what time it is comes in, what is to be done goes out.
//
// The way of a stream:
//
//  1. Asking: the engine's metrics page is read, because its start time is the best
//     evidence of which life of the engine a batch belongs to.
//  2. Shared: the source is in the group's log. The log assigns the role; a reader
//     opens the stream and goes on from where the group is. An engine whose page
//     does not say when it started gets its incarnation from the log, or from the
//     clock of the replica that reads it first.
//  3. Direct: nothing can be shared, so this replica reads the stream for itself.
//
// Invariants: the content is given up only for a newer life of the engine, or to
// begin anew after it was found wrong, and then under a greater incarnation, so that
// all members follow; a stream is open only in the modes Shared and Direct; every
// state that does not last has a time at which Advance is due again.
package plan
