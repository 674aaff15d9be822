// Package zmtp implements ZMTP 3.x (ZeroMQ RFC 23 and 37) with the NULL mechanism over TCP and Unix
// sockets: the client sides SUB and DEALER, which read engines' event streams and replays, and the
// server sides PUB and ROUTER, which simulated engines and tests use.
//
// How a reader works:
//
//  1. Dial connects, exchanges greetings and READY commands within a deadline,
//     and checks the peer's socket type.
//  2. Conn.Subscribe sends the topic prefixes (SUB only).
//  3. Conn.Recv reads the next message into a reused Message. It answers PING,
//     sends its own PING when the peer is silent, and gives up on a peer that
//     does not reply.
//  4. Any error of Recv is final: the owner closes the Conn and dials again.
//
// The package does not reconnect, queue on the reading side, or hide lost connections, because the
// reader of an event stream must detect every reconnect.
//
// Invariants: memory grows with received bytes, never with announced lengths. Frames, messages and
// commands have limits (Limits). A peer that violates the protocol loses its own connection only.
//
// One goroutine calls Recv; any goroutine may call Send, Subscribe and Close. PUB and ROUTER are
// safe for concurrent use.
package zmtp
