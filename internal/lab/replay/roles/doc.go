// Package roles suggests how many engines of a fleet should prefill: it plays a trace with
// each number of them and compares.
package roles
