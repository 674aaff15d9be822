// Package remotecluster makes the pools of remote clusters candidates next to this cluster's
// endpoints. They are compared by the same cost: the wait for a first token there, the prefill
// minus known cached prefixes, the cost to other requests, the round trip, and the price of egress.
//
// The path of a request:
//
//  1. The scheduler ranks this cluster's endpoints and calls [Fleet.Offer].
//  2. Each pool with the same name in a remote cluster is a candidate, or excluded for a reason
//     that the decision record keeps ([Fleet.why]).
//  3. Candidates are priced ([side.quote]), and so is the best local endpoint.
//  4. The cheapest candidate gets the request if it is sufficiently cheaper ([leaves]). A
//     cluster that already gets requests needs a smaller advantage.
//  5. The destination is the remote cluster's gateway, whose own picker chooses, or one of its
//     endpoints if they are reachable. Its picker may be asked for one
//     ([Fleet.ResolveEndpoint]). A signed token is added, so that the request is not forwarded
//     again.
//
// Announcements of remote clusters are not trusted blindly. They are used only within their lease,
// this replica's own requests are added, and a cluster that answers later than announced becomes
// more expensive for a while. A cluster with failures is excluded and then tried with single
// requests.
//
// The package has no goroutines and no clock. Fleet is safe for concurrent use. Decisions read one
// immutable table and lock one cluster's account at a time.
package remotecluster
