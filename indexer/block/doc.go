// Package block has the values by which prefixes are named and compared: keys and
// how they are computed, engines' own hashes, endpoints and their event streams,
// storage tiers, queries and the runs that answer them. Whoever asks the index
// needs these and not the index.
//
// Everything is a plain value but for Hasher, which is safe for concurrent use.
package block
