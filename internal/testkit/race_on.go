//go:build race

package testkit

// raced tells that the race detector is on.
const raced = true
