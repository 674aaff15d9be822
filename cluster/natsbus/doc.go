// Package natsbus is the cluster.Bus over a NATS cluster. Use it where members cannot reach each
// other but all can reach NATS.
//
// The main path:
//
//  1. Open connects, subscribes, and publishes a heartbeat four times a second. Each process
//     with recent heartbeats is a member. A member that says goodbye or is silent for a second
//     is removed.
//  2. Broadcast frames use one subject, and each member has a subject for frames to it alone.
//     These carry live deltas as well as requests and replies for ranges and snapshots. All are
//     core NATS subjects, so frames may be lost; package core detects that by sequence numbers.
//  3. A new sender must prove that it is alive by sealing the receiver's nonce, because
//     messages of dead processes may be replayed.
//  4. With Options.Keys every message is sealed with AES-GCM under a key of its sender, derived
//     from the group key. Messages that cannot be opened are rejected and counted. Without keys
//     members trust every client that NATS lets publish on their subjects.
//
// A broken connection takes all links down at once; the client reconnects to another server. A
// separate goroutine publishes, so Send never blocks.
//
// Subjects, below Options.Prefix and Options.Group: hb (heartbeats), all (broadcast frames), to.ID
// (frames for one member, ID in URL-safe base64), ask.ID (proof requests and answers).
package natsbus
