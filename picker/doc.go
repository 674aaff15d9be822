// Package picker chooses endpoints for inference requests.
//
//  1. Package request reads a request's headers and body in one scan.
//  2. Scheduler.Choose opens a cycle: the endpoints of the pool's snapshot that
//     the proxy allows, with their load, gauges and learned constants (package
//     endpoint).
//  3. A profile handler runs profiles over it: filters, scorers, a picker. These
//     belong to package cycle and see nothing else.
//  4. The plan is entered into the load tracker, reported to the Matcher (the prefix
//     index) and kept in Records for explain. The caller gets the Decision.
//  5. Events of the response update the load tracker and the learned Cost.
//     Decision.Done releases everything, once.
//
// It implements no protocol, does no I/O, reads no configuration and starts no goroutine. Sessions
// are shared between replicas through the hooks sessions.Table.OnBind and Merge.
//
// Invariants: a chosen endpoint is always in the subset that the proxy allows. The local part of
// the load tracker returns to zero when every decision is done. A cycle is used by one goroutine.
// Pool snapshots, profiles and rules are immutable and replaced as a whole. All other exported
// types are safe for concurrent use unless documented otherwise.
package picker
