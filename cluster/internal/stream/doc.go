// Package stream carries frames between members over gRPC: each member dials
// every other and sends on the stream that it dialled, over mutual TLS 1.3.
//
// The main path:
//
//  1. New makes a certificate for this process (or takes a given one). Its
//     Fingerprint reaches the others through membership, which is encrypted.
//  2. SetPeers names the others: ID, address, fingerprint. One goroutine per
//     peer dials, says hello, and sends what its queue holds.
//  3. The other end checks the certificate against the fingerprint of the
//     member that the hello names; from then on the stream is that member.
//  4. A stream that breaks is reported at once (Handler.Link), and dialled
//     again.
//
// What does not fit a peer's queue is dropped and counted. Frames of class
// Live overtake those of class Bulk.
//
// The accepting end tells the dialling one whether its own dial in the other
// direction works, so that a member whose advertised address is wrong hears
// of it (Unreachable).
//
// It does not know members: that is gossip's business. It does not look into
// frames.
//
// Wire: gRPC method /grapevine.cluster.v1.Stream/Link, bidirectional, content
// subtype "grapevine". First message of the dialling end: a hello. Others: a
// sequence of frames, each preceded by its length in 4 bytes, little endian.
// Messages of the accepting end: one byte, then text: 0 welcome, 1 your
// address works, 2 your address cannot be reached (text says why).
package stream
