// Package blockhash names KV-cache blocks as engines do: a chained hash over the parent's digest,
// the block's tokens and the extra keys that separate caches.
//
// SHA256CBOR is vLLM's "sha256_cbor": SHA-256 over the canonical CBOR of (parent digest, tokens,
// extra keys). Events contain the last eight bytes of the digest, big-endian. Fast is a 64-bit
// chain for simulations without comparison to an engine's names.
package blockhash
