//go:build race

package sweep

// raced reports whether the race detector is on.
const raced = true
