// Package indexer knows which endpoint holds which prefix blocks.
//
// The main path of a change: a reader of an engine's event stream computes a
// Delta with the keys of a Hasher, and Index.Apply enters it. The main path of a
// request: Index.Match walks the prompt's bytes down the trie and reports each
// candidate's leading Run. View reads what a source holds at one moment, and Stage
// replaces it at once.
//
// Package approx does the same for fixed-size chunks of prompts that were sent
// somewhere earlier; package wire encodes deltas, snapshots and keys.
//
// It does no I/O, starts no goroutines, logs nothing and has no clock: times are
// arguments. Engine hashes and block keys are different types and never compared.
//
// Invariants: a node is in the trie while somebody holds it or one of its
// descendants; a source's digest depends on what it holds and not on the order of
// events; readers never wait for writers. DESIGN.md in this folder has the
// structure, the reclamation argument and the wire format (package wire).
package indexer
