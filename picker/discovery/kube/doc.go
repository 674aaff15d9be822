// Package kube finds a pool's endpoints, objectives and rewrites in the objects
// of a Kubernetes API server.
//
// The main path:
//
//  1. Open follows the InferencePool, of v1 or, where only that is installed,
//     of v1alpha2. A Source without a pool is given selector and ports instead.
//  2. The pods that the pool's selector selects are followed. Another selector
//     is followed beside the old one, and takes its place once it is read.
//  3. A pod that is ready, not terminating and has an address is one endpoint
//     for each target port of the pool; labels and annotations say the rest.
//     See specs.
//  4. InferenceObjectives and InferenceModelRewrites that name the pool become
//     the names of requests, from the group llm-d.ai where that is installed,
//     else from the older one. See names.
//  5. What differs from what was told before is told, whole, at most every
//     hundred milliseconds.
//
// Nothing that is known is given up because something cannot be read: not when
// the server is away, when rights are taken or when a kind is uninstalled. A
// pool's endpoints go when the server confirms, ten seconds later, that the
// pool was deleted. Status says how old the knowledge is and which right is
// missing.
//
// An endpoint's life is its pod and how often its container was started: another
// pod at the same address inherits nothing.
//
// It does not look at what gateways write into the pool, and does not ask
// engines anything. specs and names are pure; a Source is safe for concurrent
// use and tells from one goroutine.
package kube
