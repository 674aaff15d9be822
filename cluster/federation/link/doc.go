// Package link runs a federation's state machine ([federation.Core]) on a real clock and a real
// network.
//
//  1. [ReadConfig] reads the configuration file, which lists the clusters and the settings for
//     each.
//  2. [Open] listens, and connects to every other cluster: with one mutual TLS connection per
//     asked replica, or over NATS (conn.go, nats.go).
//  3. Received messages go to the core one at a time. Messages from the core are queued, and
//     dropped and counted if a queue is full.
//  4. After each change the [federation.View] is replaced: [Link.View] is one atomic load.
//
// Clusters are always authenticated. Over TLS, the name in a certificate signed by the federation's
// CA identifies the cluster; over NATS, the key of the pair does.
//
// All methods are safe for concurrent use. Close stops every goroutine and waits.
package link
