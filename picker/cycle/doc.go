// Package cycle is one decision from the inside: what plugins see, and what they are.
//
// A Cycle holds the endpoints that one request may go to, with their load, gauges and
// learned constants, and, once somebody asks, what each holds of the prompt. Filters,
// Scorers and a Picker make a Profile; a ProfileHandler runs profiles and fills the Plan.
// Who is left out before any profile runs (sick or full endpoints, those that do not serve
// the model) is decided here too, and noted.
//
// It knows no scheduler, no book of requests under way and no record: package picker
// carries the plan out.
//
// A cycle is used by one goroutine, from New to Free, and is read-only to what it shows:
// pool snapshots and profiles are immutable.
package cycle
