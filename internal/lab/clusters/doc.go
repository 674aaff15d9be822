// Package clusters plays a day of many clusters in virtual time: engines that serve
// sessions, a day's rise and fall of load that is shifted from cluster to cluster, and the
// federation's own state machine and pricing, which are those of the product.
//
//  1. Sessions come to the cluster in which their users are (world.go).
//  2. A cluster prices its own best engine as the default policy does, and asks the policy
//     that is played where the request goes (policy.go).
//  3. Engines prefill first come first served, and decode beside it (engine.go).
//  4. Every cluster has a federation.Core; what they send takes the links' time, and is
//     lost where a link is cut (control.go).
//
// Faults cut links, kill clusters and start pickers anew; a run counts what was lost and
// how often a request was sent on.
package clusters
