// Package natsbus is the cluster.Bus over a NATS cluster, for places where
// members cannot reach each other but all reach NATS.
//
// The main path:
//
//  1. Open connects, subscribes, and publishes a heartbeat four times a
//     second. Who is heard is a member; who says goodbye, or is silent for a
//     second, is none.
//  2. Frames for everybody go to one subject, those for one member to its own.
//     That carries live deltas as well as requests and replies for ranges and
//     snapshots: core subjects all, so frames may be lost, and the state
//     machine above notices by sequence numbers.
//  3. A sender that was not heard before is asked whether it lives, and heard once it
//     has sealed the nonce of whoever asks: messages of the dead may have been recorded.
//  4. With Options.Keys every message is sealed with AES-GCM under a key of
//     its sender, derived from the group's; what cannot be opened is refused
//     and counted. Without keys the members trust everybody whom NATS lets
//     publish on their subjects.
//
// A connection that breaks takes all links down at once; the client reconnects
// to another server by itself. Publishing has a goroutine of its own, so that
// Send never waits.
//
// Subjects, below Options.Prefix and Options.Group: hb (heartbeats), all
// (frames for everybody), to.ID (frames for one member, ID in URL-safe base64), ask.ID
// (questions and answers whether it lives).
package natsbus
