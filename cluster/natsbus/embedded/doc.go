// Package embedded runs a nats-server in this process, for tests and for replicas on a laptop that
// need a bus without an installation.
package embedded
