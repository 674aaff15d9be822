// Package kvtransfer handles the fields of request bodies that control the KV transfer from a
// prefill engine to a decode engine. Only the proxies between the two may set them. A client that
// sets one could read another tenant's cache, make an engine connect to any host, occupy an
// engine's memory, or crash it.
//
//  1. Parse finds the fields of a body without decoding their values. Object.With returns the
//     body with fields set or removed, and every other byte unchanged.
//  2. Suspect reports the KV-transfer fields, and Policy defines what to do about them.
//  3. Report is a proxy's report about a transfer in a response header; Faults are failed
//     prefill attempts.
//
// If a field repeats, Get returns the last one, like the engines' decoders. Time and memory of
// every function are linear in its input. The package does no I/O; everything is safe for
// concurrent use.
package kvtransfer
