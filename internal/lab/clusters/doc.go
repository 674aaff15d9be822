// Package clusters simulates a day of many clusters in virtual time. It uses the product's
// federation state machine and pricing. Engines and users are simulated; the load rises and falls
// over the day at another time in each cluster.
//
//  1. Sessions start in the cluster of their users (world.go).
//  2. A cluster prices its best engine as the default policy does. The policy under test then
//     chooses the cluster of the request (policy.go).
//  3. Engines prefill in order of arrival and decode at the same time (engine.go).
//  4. Every cluster has a federation.Core. Messages take the time of the link, and are lost if the
//     link is cut (control.go).
//
// Faults cut links, kill clusters and restart pickers. A run counts lost requests and how often
// each request was forwarded.
package clusters
