// Package sim runs cluster/core in virtual time: engines whose logs are
// the truth, members that read and share them, and a network and processes
// that fail, all a function of one seed.
//
// The main path:
//
//  1. New builds a World from a Plan; Random makes the Plan of a seed.
//  2. Run moves virtual time; Kill, Start, Partition, … are the faults.
//  3. After every event the invariants are checked for what it touched: a
//     position never moves back, and what claims to be exact equals what the
//     engine wrote.
//  4. Converged says whether all members that live know the same, all of it.
//
// It knows nothing of blocks: an engine's batch is an opaque number, and the
// content of a store is the chained hash of the batches applied. Any batch that
// is left out, applied twice or out of order changes it for good.
//
// A World is not safe for concurrent use.
package sim
