// Package xds serves Envoy what it needs to follow a pool: the pool's endpoints,
// the live replicas, and on request the whole listener, over one ADS stream.
//
// Every replica computes the same snapshot from the same facts: names, order and
// version depend only on content, so that Envoy can move from one replica to another
// without a change. When every replica is gone, Envoy keeps what it was told last.
//
// The main path: Set takes a State, builds the resources (endpoints for the
// clusters "engines" and "pickers"; with Listener also the clusters and the listener of
// package envoyconf) and puts them into go-control-plane's snapshot cache, which
// answers the streams. Safe for concurrent use.
package xds
