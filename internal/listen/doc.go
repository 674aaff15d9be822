// Package listen is what gRPC listeners have in common: TLS from files that are
// read anew when they change, certificates of clients, connections that wait when they end
// streams which said nothing, and a health service whose readiness is set from outside.
package listen
