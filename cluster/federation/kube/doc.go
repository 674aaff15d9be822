// Package kube represents a federation as Kubernetes objects. It exports annotated InferencePools
// and maintains the InferencePoolImports of one member cluster.
//
// The main path:
//
//  1. Open watches the InferencePools and InferencePoolImports of its own API server. The
//     federation (Options.View) provides the exports and imports of other clusters, so no
//     cluster needs permissions in another.
//  2. desired computes, from this input alone, the wanted content of every object and the state
//     that this cluster publishes to the others: its exports and its imports.
//  3. Differences are written. A pool's status.parents is an atomic list with many writers. Our
//     entry is changed in the list as it was read, with its resource version, and retried on a
//     conflict. An import's status.controllers is a map by name, to which only our entry is
//     applied.
//  4. An entry that another writer overwrote is written again after ten seconds, then at
//     doubling intervals up to ten minutes. These writes are counted.
//
// Exported is True only while every member reports an import that names this cluster, as read from
// its own API server. A sent update is not evidence of an import.
//
// Withdrawal: after a pool's annotation is removed, its export is draining for the drain time, and
// imports keep it. Then importers drop it. The start of draining is stored in this cluster's own
// import, so that a restart neither skips nor prolongs it. A silent cluster has withdrawn nothing:
// imports keep it, marked, until the forget time.
//
// Replicas: all compute, and write in turns. The first writes immediately. Each further replica
// writes only differences that remain after its turn's delay. So there is one write while all are
// healthy, and no leader election when the first is not. Writes are idempotent: of two concurrent
// writes, one is rejected.
//
// Invariants: entries of other controllers are never changed, reordered or dropped. Nothing is
// removed before the federation has settled. An import is deleted only if this controller made it,
// no other controller has an entry, and its version is the one that was read.
//
// The package does no routing: weights between InferencePool and InferencePoolImport backends, and
// parents of imports, belong to the gateway that serves them.
// plan.go is pure. A Controller is safe for concurrent use and writes from one
// goroutine.
package kube
