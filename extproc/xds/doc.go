// Package xds serves an Envoy's configuration for a pool over one ADS stream: the pool's endpoints,
// the live replicas, and optionally the whole listener.
//
// Every replica computes the same snapshot from the same data: names, order and version depend only
// on content. So Envoy can switch replicas without a change. If all replicas are down, Envoy keeps
// its last configuration.
//
// The main path: Set takes a State and builds the resources: endpoints for the clusters "engines"
// and "pickers" and, with Listener, the clusters and the listener of package envoyconf. It stores
// them in go-control-plane's snapshot cache, which answers the streams. Safe for concurrent use.
package xds
