// Package sim runs cluster/core in virtual time, with simulated engines, members, network and
// process faults, all determined by one seed.
//
// The main path:
//
//  1. New builds a World from a Plan; Random makes the Plan of a seed.
//  2. Run advances virtual time; Kill, Start, Partition, … inject faults.
//  3. After every event the affected invariants are checked: a position never moves back, and
//     a state reported as exact equals what the engine wrote.
//  4. Converged reports whether all running members have the complete state.
//
// Blocks are not simulated. An engine's batch is an opaque number, and a store's content is the
// chained hash of the applied batches. Any batch that is omitted, repeated or reordered changes it
// permanently.
//
// A World is not safe for concurrent use.
package sim
