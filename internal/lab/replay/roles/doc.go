// Package roles suggests how many engines of a fleet should prefill: it replays a trace with each
// number of prefill engines and compares the results.
package roles
