// Package kube shows a federation in Kubernetes objects: it exports annotated
// InferencePools and keeps the InferencePoolImports of one member cluster.
//
// The main path:
//
//  1. Open follows the InferencePools and InferencePoolImports of its own API
//     server. What other clusters export, and which imports they have, comes
//     from the federation by Options.View: no cluster needs rights in another.
//  2. desired computes, from what is read and heard and from nothing else, what
//     every object is to say, and what this cluster tells the others: the pools
//     that it exports and the imports that it has.
//  3. What differs is written. Our entry of a pool's status.parents, an atomic
//     list of many writers, is changed in the list as it was read, bound to its
//     version, and tried again when that moved. Our entry of an import's
//     status.controllers, a map by name, is applied alone.
//  4. An entry that somebody overwrote is written again after ten seconds, then
//     at doubled distances up to ten minutes, counted, and never in a race.
//
// Exported is True only while every member says that it has an import which
// names this cluster, as read from its own API server: what was sent is not what
// has arrived.
//
// Withdrawal: a pool whose annotation goes is told as draining for the drain
// time, in which imports keep it; then importers drop it. When that began stands
// in this cluster's own import, so that a restart neither forgets nor prolongs
// it. A cluster that falls silent has withdrawn nothing: imports keep it, marked,
// until it is forgotten.
//
// Several replicas: all compute, and write in turns. The first writes at once,
// each further one only what still differs after its turn's delay, so that one
// write is made where all are well and none waits for an election where the
// first is not. Writes are idempotent: two at once cost one refused write.
//
// Invariants: entries of others are never changed, reordered or dropped; nothing
// is removed before the federation has settled; an import is deleted only when
// we made it, nobody else has an entry, and its version is the one that was read.
//
// It routes nothing: weights between InferencePool and InferencePoolImport
// backends, and parents of imports, belong to the gateway that serves them.
// plan.go is pure. A Controller is safe for concurrent use and writes from one
// goroutine.
package kube
