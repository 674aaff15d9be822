// Package pd places requests whose prompt one endpoint computes and another
// answers: prefill/decode, and encode before both.
//
//  1. Handler.Handle runs the decode profile over the endpoints that serve
//     requests. Its best is the endpoint that the proxy talks to.
//  2. For each further stage a Decider says, by what that endpoint holds,
//     whether another one should do it.
//  3. The stage's profile runs over the endpoints that can: filters see the
//     decode endpoint as the cycle's Peer, so that closeness counts.
//  4. The plan gets the stage's endpoints as a header, alternates included, for
//     the proxy beside the decode engine, and a Part for the in-flight book.
//
// Table adds the plugin types that a configuration makes of this to the built-in
// ones (rows.go, params.go, deciders.go).
//
// It does not move any block and does not talk to engines: the proxy beside the
// decode engine reads the headers and runs the remote stages.
//
// Invariants: all endpoints of a plan are candidates of the cycle, so in the
// subset that the proxy allows. A stage for which nobody is left never refuses
// a request: the decode endpoint does that work itself, and the plan says so.
//
// A Handler is immutable and safe for concurrent use.
package pd
