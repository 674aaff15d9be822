// Package admin serves a replica's administration port: metrics, liveness,
// readiness, status, recent decisions, and profiles.
//
// A Client asks such a port.
//
// It knows HTTP and nothing about picking: everything it shows is a function
// given in Options. Compat alone follows requests: it keeps the series that other
// endpoint pickers serve. Handlers are safe for concurrent use. Profiles (pprof) are
// answered only to clients on loopback, since they reveal memory contents.
package admin
