// Package federation is what clusters tell each other: which pools they have, how
// loaded these are, and which prefixes are hot there, in a filter of about two bytes
// for a block.
//
// The main path:
//
//  1. A cluster describes each pool that it exports by an [Export] and remembers the
//     prefixes of its requests in a set of hot blocks, whose keys are never those of the
//     cluster's own index (package filter).
//  2. For each other cluster there is a source: the filter of the pair, keyed for it
//     alone. The importing side asks for what has changed since what it has.
//  3. What is known of all others is a [View], an immutable snapshot. Requests read it
//     by one atomic load: [Current.Load].
//
// Nothing of it is needed to serve: a cluster that says nothing is out of the view's
// use when its lease ends ([Remote.Usable]), and a filter that is wrong sends a
// request on a detour.
//
// The package does no I/O, starts nothing and has no clock: times are arguments.
// Package link carries the messages.
package federation
