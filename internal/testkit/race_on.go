//go:build race

package testkit

// Raced reports whether the race detector is on.
const Raced = true
