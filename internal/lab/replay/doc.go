// Package replay answers "which policy would have been best": it runs request
// traces through the picker's own code against simulated engines in virtual
// time.
//
//  1. trace.Read reads a trace in the public block-hash format, or a Workload
//     makes one. Blocks become small dense numbers; sessions are derived from
//     the chains where the trace names none, and lengths of answers that a
//     recording did not see are drawn from those that it saw.
//  2. Trace.Scale adds or leaves out whole users until the load is right; a
//     Policy is a built-in one or a configuration file (FilePolicy).
//  3. Run plays one Case: arrivals go to a replica's picker.Scheduler, with the
//     virtual clock and a picker.Matcher over what that replica would know, and
//     from there to an engine.Engine. Steps end, first tokens and ends are told
//     to the scheduler, and what replicas share arrives after its delay.
//  4. internal/lab/sweep plays grids of cases.
//
// It does not tokenize, speak any protocol or wait for anything: an hour of
// eight engines takes about a second.
//
// Invariants: a Case, its seed included, decides every figure; every request
// of a trace is answered or refused exactly once; requests arrive as the trace
// says, however long earlier ones take.
//
// Concurrency: a Run is single-threaded; different runs share nothing but
// traces, which are read-only.
package replay
