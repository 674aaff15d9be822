// Package memnet is a network in virtual time: it decides when, how often and
// whether a frame arrives. It holds no frames, clocks or goroutines; the
// simulation that asks it delivers what it is told to, so a run is a function
// of its seed.
package memnet
