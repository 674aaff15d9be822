// Package elsewhere makes the pools of other clusters candidates beside this cluster's
// endpoints, in the same cost: what a first token would wait for there, the prefill less
// what is known to be held there, what the request costs others there, the round trip,
// and the price of the way out.
//
// The way of one request:
//
//  1. The scheduler ranks this cluster's endpoints and calls [Fleet.Offer].
//  2. Each pool of the same name in another cluster is a candidate, or is none for a
//     reason that the decision record keeps ([Fleet.why]).
//  3. Candidates are priced ([side.quote]); so is the best endpoint here.
//  4. The cheapest one has the request, if it is cheaper by enough to leave
//     ([leaves]): what has begun to go there needs less of an advantage than what has not.
//  5. The destination is the other cluster's gateway, whose own picker chooses, or one of
//     its endpoints where they can be reached, which its picker may be asked for
//     ([Fleet.Ask]). A signed token travels along, so that no request goes on from there.
//
// What is told of other clusters is a claim: it is believed within its lease only, own
// requests on their way are added to it, and what answers later than it was told to is
// dearer by that for a while. A cluster where requests fail is left out, and tried again
// with single ones.
//
// The package has no goroutine and no clock. Fleet is safe for concurrent use; decisions
// read one immutable table, and lock one cluster's account at a time.
package remotecluster
