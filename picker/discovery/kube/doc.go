// Package kube finds a pool's endpoints, objectives and model rewrites in the objects of a
// Kubernetes API server.
//
// The main path:
//
//  1. Open follows the InferencePool, of v1 or, if only that is installed, of v1alpha2. A
//     Source without a pool is configured with a selector and ports instead.
//  2. The pods matching the pool's selector are followed. After a change of the selector, the
//     new pods replace the old ones once they were read. Options.Guard can hold such a change.
//  3. A pod that is ready, not terminating and has an address is one endpoint per target port
//     of the pool, configured by labels and annotations. See specs.
//  4. InferenceObjectives and InferenceModelRewrites that refer to the pool become the names of
//     requests, from the group llm-d.ai if installed, else from the older one. See names.
//  5. Changes are published as a complete list, at most every hundred milliseconds.
//
// Read failures never remove known data: not an unreachable server, revoked permissions, or an
// uninstalled resource type. Objects that may not be watched are listed every few seconds. A pool's
// endpoints are removed when the server confirms, after ten seconds, that the pool was deleted.
// Status has the age of the data and missing permissions.
//
// An endpoint's incarnation is its pod and the container's restart count: another pod at the same
// address inherits nothing.
//
// FollowPicked finds the pools themselves: all that refer to a Service as their endpoint picker.
//
// The package ignores what gateways write to the pool, and does not connect to engines. specs and
// names are pure. A Source is safe for concurrent use and publishes from one goroutine.
package kube
