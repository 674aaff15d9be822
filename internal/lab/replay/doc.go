// Package replay compares policies. It runs request traces through the picker's own code against
// simulated engines in virtual time.
//
//  1. trace.Read reads a trace in the public block-hash format, or a Workload generates one.
//     Blocks become small dense numbers. Missing sessions are derived from the chains, and
//     missing response lengths are drawn from the recorded ones.
//  2. Trace.Scale adds or removes whole users to reach the load. A Policy is a built-in one or
//     a configuration file (FilePolicy).
//  3. Run plays one Case: arrivals go to a replica's picker.Scheduler, with the virtual clock
//     and a picker.Matcher over that replica's data, and then to an engine.Engine. The
//     scheduler is notified of step ends, first tokens and completions. Messages between
//     replicas arrive after their delay.
//  4. internal/lab/sweep plays grids of cases.
//
// It does not tokenize, speak any protocol or wait in real time: an hour of eight engines takes
// about a second.
//
// Invariants: a Case, including its seed, determines every figure. Every request of a trace is
// completed or refused exactly once. Requests arrive at the trace's times, however long earlier
// ones take.
//
// Concurrency: a Run is single-threaded; different runs share only traces, which are read-only.
package replay
