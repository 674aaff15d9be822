// Package link runs a federation's state machine ([federation.Core]) on a real clock and
// a real network.
//
//  1. [ReadConfig] reads the file that says which clusters there are and what is
//     arranged with each.
//  2. [Open] listens, and asks every other cluster: one connection of mutual TLS for
//     each replica that is asked, or NATS (conn.go, nats.go).
//  3. What comes is handed to the core, one message at a time; what the core wants sent
//     is queued, and dropped and counted where a queue is full.
//  4. After each change the [federation.View] is replaced: [Link.View] is one load.
//
// It trusts nobody's word for who he is: over TLS the name in a certificate that the
// federation's authority signed says which cluster it is, over NATS the key of the pair.
//
// All methods may be called concurrently. Close ends every goroutine and waits for it.
package link
