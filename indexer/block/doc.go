// Package block defines the types by which prefixes are identified and compared: keys and their
// computation, engine hashes, endpoints and their event streams, storage tiers, queries and runs.
// Clients of the index need these types without the index itself.
//
// All types are plain values except Hasher, which is safe for concurrent use.
package block
