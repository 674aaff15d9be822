// Package trace holds loads: requests with their arrival, their lengths and the
// KV blocks of their prompts, read from files or generated.
//
//  1. Read (or Open) reads a trace in the public block-hash format, a table of times and
//     lengths (table.go) or conversations (talk.go); a Workload makes one. Blocks become small dense numbers; sessions are derived from the
//     chains where the trace names none, and lengths of answers that a recording
//     did not see are drawn from those that it saw (session.go).
//  2. Trace.Scale adds or leaves out whole users until the load is right.
//
// Workloads are a few distributions each (generate.go, workloads.go); those from
// oneapp on are made to break policies.
//
// Invariants: equal options and seeds give equal traces; a Trace is read-only once
// made and may be used by many goroutines.
//
// It does not tokenize and does not play anything: see internal/lab/replay.
package trace
