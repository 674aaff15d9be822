// Package wan is what lies between clusters that run on one machine: connections that
// take a while and can be cut, and the certificates by which clusters know each other.
//
// A Wire stands before an address of a cluster. It is safe for concurrent use; its
// goroutines end with Close. It is no model of loss or bandwidth.
package wan
