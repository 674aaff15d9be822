//go:build race

package testkit

// Raced tells that the race detector is on.
const Raced = true
