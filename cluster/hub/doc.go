// Package hub is a cluster.Bus within one process: for tests of what is built
// on a Node, and for several replicas in one program. Members find each other
// at once, and Cut makes two of them lose each other.
//
// Each member has one goroutine, which Close stops and waits for.
package hub
