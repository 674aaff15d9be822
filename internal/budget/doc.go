// Package budget divides the memory and the file descriptors that the process
// may use among what it does, so that no input can take what keeps it alive.
//
// The path of a byte:
//
//  1. Memory finds how much the process may use: the smaller of its cgroup's
//     limit and the machine's memory (memory.go).
//  2. New gives each Use a share of it (budget.go). Whoever is about to keep or
//     make something on behalf of a request takes bytes of its Use first and
//     gives them back afterwards; when there are not so many left, Take returns
//     false and the request is refused or placed with less knowledge.
//  3. Pressed is the last line, for memory that nobody could count beforehand,
//     such as messages that are still arriving: it compares what the last
//     garbage collection found alive with the limit (pressure.go).
//  4. Apply tells the garbage collector about the limit.
//
// Listen and Guard bound connections: how many there are on a listener, and how
// long one may be idle before it has said anything (listen.go).
//
// What it does not do: measure, or decide what happens to a request.
//
// A nil *Budget grants everything. Everything is safe for concurrent use.
package budget
