// Package zmtp speaks ZMTP 3.x (ZeroMQ RFC 23 and 37) with the NULL mechanism
// over TCP and Unix sockets: the client sides SUB and DEALER, which read
// engines' event streams and replays, and the server sides PUB and ROUTER,
// which simulated engines and tests bind.
//
// Main path of a reader:
//
//  1. Dial connects, exchanges greetings and READY commands within a deadline,
//     and checks the peer's socket type.
//  2. Conn.Subscribe sends the topic prefixes (SUB only).
//  3. Conn.Recv fills a reused Message with the next message. It answers PING,
//     sends its own PING when the peer is silent, and gives up on a peer that
//     answers none.
//  4. Any error of Recv is final: the owner closes the Conn and dials again.
//
// It does not reconnect, queue on the reading side, or hide lost connections:
// whoever reads an event stream must know of every reconnect.
//
// Invariants: memory grows with bytes received, never with lengths announced;
// frames, messages and commands have limits (Limits); a peer that breaks the
// protocol costs its own connection only.
//
// Concurrency: one goroutine calls Recv; Send, Subscribe and Close may be
// called by any. PUB and ROUTER are safe for concurrent use.
package zmtp
