// Package gossip is the cluster.Bus that needs no other service: SWIM membership
// (hashicorp/memberlist) over an encrypted gossip plane, and gRPC streams (package stream) for
// everything else.
//
// The main path:
//
//  1. Open binds both ports, starts memberlist with this member's metadata (name, boot, stream
//     address, certificate fingerprint), and joins the members in Options.Join. Names are
//     resolved to all their addresses, repeatedly while the member runs.
//  2. Membership changes go to the Handler and to the streams, which dial new members and drop
//     departed ones.
//  3. Frames travel only on streams; gossip carries only membership.
//
// Crashes: a broken stream is reported immediately. SWIM, tuned to five probes a second, removes
// the member within 2 s.
//
// An advertised address that cannot work is rejected. Open fails if every member that answers
// reports that it cannot reach this one. If that happens later, Status reports it.
//
// The package makes no decisions about states and does not use gossip broadcasts, which carry only
// a few kilobytes a second.
package gossip
