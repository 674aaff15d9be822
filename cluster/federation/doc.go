// Package federation is the protocol between clusters. Clusters exchange which pools they have, how
// loaded these are, and which prefixes are hot there, in a filter of about two bytes per block.
//
// The main path:
//
//  1. A cluster describes each pool that it exports by an [Export]. It records the prefixes of
//     the pool's requests in a set of hot blocks. Their keys are unrelated to the keys of the
//     cluster's own index (package filter).
//  2. For each other cluster there is a source: the filter of the pair, with a separate key.
//     The importing side asks for changes since its last position.
//  3. The data of all other clusters forms a [View], an immutable snapshot. Requests read it
//     with one atomic load: [Current.Load].
//
// Serving does not depend on it. A silent cluster becomes unusable when its lease ends
// ([Remote.Usable]), and an incorrect filter only causes a detour.
//
// The package does no I/O, starts no goroutines and has no clock: times are arguments. Package link
// carries the messages.
package federation
