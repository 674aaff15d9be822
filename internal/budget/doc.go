// Package budget divides the process's memory and file descriptors among its activities, so that no
// input can exhaust them.
//
//  1. Memory determines the process's limit: the smaller of its cgroup's limit and the
//     machine's memory (memory.go).
//  2. New gives each Use a share (budget.go). Code that stores or builds something for a
//     request takes bytes of its Use first and releases them afterwards. If Take returns false,
//     the request is refused or placed with less information.
//  3. UnderPressure is the last defense, for memory that cannot be counted in advance, such as
//     messages being received: it compares the live heap after the last garbage collection with
//     the limit (pressure.go).
//  4. Apply sets the garbage collector's limit.
//
// Listeners limit connections: their number per listener, and the time until the first byte
// (listen.go).
// The package does not measure requests or choose how to refuse them.
//
// A nil *Budget grants everything. Everything is safe for concurrent use.
package budget
