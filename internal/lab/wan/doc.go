// Package wan simulates the links between clusters on one machine: TCP connections with a delay
// that can be cut, and the certificates with which clusters authenticate each other.
//
// A [Wire] forwards connections to an address of a cluster. It is safe for concurrent use; Close
// ends its goroutines. It does not model loss or bandwidth.
package wan
