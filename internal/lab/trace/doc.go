// Package trace holds loads: requests with their arrival times, their lengths and the KV blocks of
// their prompts, read from files or generated.
//
//  1. Read (or Open) reads a trace in the public block-hash format, a table of times and
//     lengths (table.go) or conversations (talk.go); a Workload generates one. Blocks become
//     small dense numbers. If the trace names no sessions, they are derived from the block
//     chains. Missing answer lengths are drawn from the recorded ones (session.go).
//  2. Trace.Scale adds or removes whole users until the load matches.
//
// Workloads are a few distributions each (generate.go, workloads.go). The workloads from oneapp on
// are worst cases for policies. Runs are loads of agents, whose requests wait for each other
// (programs.go).
//
// Invariants: equal options and seeds give equal traces. A Trace is read-only after it is made, and
// safe for concurrent use.
//
// The package does not tokenize and does not replay: see internal/lab/replay.
package trace
