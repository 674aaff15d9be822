// Package embedded runs a nats-server in this process: for a laptop, where
// replicas want a bus and nobody wants to install one, and for tests.
package embedded
