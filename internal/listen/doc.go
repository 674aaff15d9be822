// Package listen is what gRPC listeners have in common: TLS from files that are
// read anew when they change, certificates of clients, and a health service whose
// readiness is set from outside.
package listen
