//go:build race

package sim

// The race detector finds nothing in code without goroutines and is ten times slower.
const defaultSeeds = 40
