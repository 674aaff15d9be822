// Package gossip is the cluster.Bus that needs nothing but the members: SWIM
// membership (hashicorp/memberlist) over an encrypted gossip plane, and gRPC
// streams (package stream) for everything else.
//
// The main path:
//
//  1. Open binds both ports, starts memberlist with this member's metadata
//     (name, boot, stream address, certificate fingerprint), and joins the
//     members that Options.Join leads to; names are resolved to all their
//     addresses, now and again while the member runs.
//  2. Membership changes are handed to the Handler and to the streams, which
//     dial who came and drop who went.
//  3. Frames travel on streams only; gossip carries nothing but membership.
//
// Sudden death: a stream that breaks is reported at once; SWIM, tuned to
// probe five times a second, removes the member within 2 s.
//
// The advertised address is refused when it cannot work: Open fails when every
// member that answers says that it cannot reach us, and Status says so when it
// happens later.
//
// It does not decide anything about states, and sends nothing on broadcasts:
// they move a few kilobytes a second at best.
package gossip
