// Package blockhash names KV-cache blocks as engines do: a chained hash over
// the parent's digest, the block's tokens and what else separates caches.
//
// SHA256CBOR is vLLM's "sha256_cbor": SHA-256 over the canonical CBOR of
// (parent digest, tokens, extra keys), shown in events as the last eight bytes
// of the digest, big-endian. Fast is a 64-bit chain for simulations in which
// nobody compares names with an engine's.
package blockhash
