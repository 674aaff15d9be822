// Package handover owns the members of request bodies by which a prefill engine
// hands its KV cache to a decode engine. Only the proxies between the two may set
// them: one that comes from a client can read another tenant's cache, make an
// engine connect to any host, hold an engine's memory, or end it.
//
//  1. Parse finds where the members of a body are, without decoding their values;
//     Object.With returns the body with members set or removed, and every other
//     byte as it was: numbers keep their digits, members their order.
//  2. Suspect names the members that hand a cache over, Policy says what is done
//     about them.
//  3. Report is what a proxy tells of a hand-over in a header of the answer, Faults what
//     it tells of prefill engines that were asked in vain.
//
// Where a member repeats, Get returns the last, as the decoders of engines do. The
// time and memory of every function are linear in its input. The package does no
// I/O; everything is safe for concurrent use.
package kvtransfer
