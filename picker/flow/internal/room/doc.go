// Package room tracks room that other replicas may be using: the room of a pool's first stage, and
// permits reserved for other replicas.
package room
