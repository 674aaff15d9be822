// Package indexer records which endpoint holds which prefix blocks.
//
// Changes: a reader of an engine's event stream computes a Delta with the keys of a Hasher, and
// Index.Apply applies it. Requests: Index.Match walks the prompt's bytes down the trie and returns
// each candidate's leading Run. View reads a source's blocks at one moment, and Stage replaces them
// atomically.
//
// Package approx does the same for fixed-size chunks of prompts that were sent to endpoints.
// Package wire encodes deltas, snapshots and keys.
//
// The package does no I/O, starts no goroutine, logs nothing and has no clock: times are arguments.
// Engine hashes and block keys are different types and never compared.
//
// Invariants: a node is in the trie while a source holds it or one of its descendants. A source's
// digest depends on its content and not on the order of events. Readers never wait for writers.
// DESIGN.md describes the structure, the reclamation argument and the wire format (package wire).
package indexer
