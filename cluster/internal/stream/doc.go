// Package stream carries frames between members over gRPC. Each member dials every other member and
// sends on the stream that it dialed, over mutual TLS 1.3.
//
// The main path:
//
//  1. New makes a certificate for this process, or takes a given one. Membership, which is
//     encrypted, distributes its Fingerprint.
//  2. SetPeers names the peers: ID, address, fingerprint. One goroutine per peer dials, sends
//     a hello, and then sends the items of its queue.
//  3. The accepting end checks the certificate against the fingerprint of the member that the
//     hello names. From then on the stream is that member's.
//  4. A broken stream is reported immediately (Handler.Link) and redialed.
//
// Frames that do not fit a peer's queue are dropped and counted. Frames of class Live overtake
// those of class Bulk.
//
// The accepting end reports to the dialing end whether its own dial in the other direction works. A
// member that advertises a wrong address can thus detect it (Unreachable).
//
// Package gossip tracks membership. This package does not interpret frames.
//
// Wire: gRPC method /grapevine.cluster.v1.Stream/Link, bidirectional, content subtype "grapevine".
// The first message of the dialing end is a hello. Later messages are sequences of frames, each
// preceded by its length in 4 bytes, little endian. Messages of the accepting end are one byte,
// then text: 0 welcome, 1 your address works, 2 your address cannot be reached (the text has the
// reason).
package stream
