// Package cycle implements one routing decision and defines the plugin interfaces.
//
// A [Cycle] holds the endpoints that may serve one request, with their load, gauges and learned
// constants and, on first use, the part of the prompt that each one holds. Filters, Scorers and a
// Picker form a Profile. A ProfileHandler runs profiles and fills the Plan. Endpoints that are
// unhealthy, full or do not serve the model are excluded before any profile runs, and recorded with
// the reason.
//
// The package does not depend on the scheduler, the load tracker's entries or the decision records:
// package picker executes the plan.
//
// A cycle is used by one goroutine, from New to Free. The pool snapshots and profiles that it
// refers to are immutable.
package cycle
