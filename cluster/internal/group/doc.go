// Package group is what all states of a member have in common: who is there,
// what time it is, how frames are addressed, and what is counted. Package core
// feeds it; gauges, feeds and logs read it.
//
// Like core it is pure, and not safe for concurrent use.
package group
