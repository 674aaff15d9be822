// Package picker chooses endpoints for inference requests. Start at Scheduler.serve in stages.go: it
// calls the stages of a request top to bottom. Each stage has a file of its name.
//
//  1. resolve sets priority, session and rewritten model of a request that package request has
//     parsed, and admit refuses requests whose model is missing.
//  2. wait returns when the request has a permit of the Gate, or may leave to a remote cluster.
//  3. prepare renders the prompt and opens a cycle: the endpoints of the pool's snapshot that the
//     proxy allows, with their load, gauges and learned constants (package endpoint).
//  4. choose lets a profile handler run profiles over it: filters, scorers, a picker. These belong
//     to package cycle and see nothing else. Then remote clusters compete.
//  5. book enters the plan into the load tracker and reports it to the Matcher (the prefix index).
//  6. answer fills the Decision, and keeps it in Records for explain.
//  7. observe handles the events of the response: they update the load tracker and the learned Cost.
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
