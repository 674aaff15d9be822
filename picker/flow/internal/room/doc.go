// Package room counts room that others may be using while this replica looks: that of a
// pool's first stage, and what was left to other replicas.
package room
