// Package listen has the common parts of gRPC listeners: TLS from files that are reloaded, client
// certificates, pacing of connections that end streams without data, and a health service with
// settable readiness.
package listen
