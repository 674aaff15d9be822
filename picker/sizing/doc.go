// Package sizing computes how many endpoints a pool needs for its load, from the learned constants
// that also price decisions.
//
//  1. Meter samples ended requests, and reads the dispatch rates that replicas share.
//  2. Demand holds them for one base model. Demand.Wanted searches the smallest number of endpoints.
//  3. Meter.Collect exports the result for autoscalers.
//
// Invariants: a number is absent, not 0, until there is evidence. Nothing here runs in a decision.
package sizing
