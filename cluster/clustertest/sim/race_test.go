//go:build race

package sim

// The race detector finds nothing in code without goroutines, and costs ten
// times as much.
const defaultSeeds = 40
