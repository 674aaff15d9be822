// Package handover owns the members of request bodies by which a prefill engine
// hands its KV cache to a decode engine. Only the proxies between the two may set
// them: one that comes from a client can read another tenant's cache, make an
// engine connect to any host, hold an engine's memory, or end it.
//
// Find names those that a body holds, Policy says what is done about them. The
// package does no I/O; everything is safe for concurrent use.
package handover
