// Package pd places requests whose prompt one endpoint computes and another one answers:
// prefill/decode, and optionally encode before both.
//
//  1. Handler.Handle runs the decode profile over the serving endpoints. The best
//     one receives the request from the proxy.
//  2. For each further stage, a Decider determines from that endpoint's cache
//     whether another endpoint should do it.
//  3. The stage's profile runs over the capable endpoints. Filters see the decode
//     endpoint as the cycle's Peer, so that closeness counts.
//  4. The plan gets a header with the stage's endpoints, including alternates, for
//     the decode engine's sidecar, and a Part for the load tracker.
//
// Table adds this package's plugin types to the built-in ones (rows.go, params.go, deciders.go).
//
// The package moves no blocks and does not connect to engines: the sidecar reads the headers and
// runs the remote stages.
//
// Invariants: all endpoints of a plan are candidates of the cycle, and therefore in the proxy's
// subset. A stage without an available endpoint does not reject a request: the decode endpoint does
// the work itself, and the plan records it.
//
// A Handler is immutable and safe for concurrent use.
package pd
