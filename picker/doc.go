// Package picker chooses endpoints for inference requests.
//
//  1. Package request reads a request's headers and body in one scan.
//  2. Scheduler.Choose opens a cycle: the endpoints of the pool's snapshot that
//     the proxy allows, with their load, gauges and learned constants, which
//     package endpoint owns.
//  3. A profile handler runs profiles over it: filters, scorers, picker. They are of
//     package cycle, and see nothing else.
//  4. The plan is entered into the Book, told to the Matcher (the index) and
//     kept in Records for explain; the Decision goes to the caller.
//  5. What the response path shows moves the Book on and teaches the Cost.
//     Decision.Done releases everything, once.
//
// It does not speak any protocol, does no I/O, reads no configuration and
// starts no goroutine. Sharing sessions between replicas happens through hooks:
// sessions.Table.OnBind and Merge.
//
// Invariants: a chosen endpoint is always in the subset that the proxy allows;
// the book's local part returns to zero when every decision is done; a cycle
// is used by one goroutine. Pool snapshots, profiles and rules are immutable
// and swapped whole; everything else that is exported is safe for concurrent
// use unless it says otherwise.
package picker
