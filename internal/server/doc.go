// Package server assembles a replica: it builds, connects and stops all parts. It is the only
// package that imports all others.
//
// Open reads the endpoints, then opens the event streams, the metrics poller, the cluster, the
// ext_proc listener and the admin port, in that order. Readiness depends on the state of the parts.
// Drain announces to proxies and peers that this replica accepts no more requests. Stop ends
// everything and waits.
//
// The package contains wiring only:
//
//   - status (status.go) and shared state (share.go)
//   - group seeds (identity.go)
//   - the configuration and its reload (rules.go)
//   - engine health (health.go) and rendering probes (rendering.go)
//   - the discovery service for Envoy (xds.go)
package server
