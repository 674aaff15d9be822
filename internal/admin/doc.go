// Package admin serves a replica's administration pages: metrics, liveness, readiness and status to
// any client; recent decisions, dry runs, recordings, reloads and profiles to authorized clients.
//
//  1. Open listens on the administration port, and on the optional control listener (admin.go).
//  2. Response headers restrict how a browser may use a page, and requests are limited in
//     size and time (guard.go).
//  3. Pages that act, or that show requests or memory, are protected. On the administration
//     port they are only for clients on this machine. The control listener is a socket file, or
//     requires a token or a client certificate. Cross-site browser requests are rejected
//     (guard.go).
//  4. Every page is a function from Options (pages.go).
//
// A Client sends requests to this port.
//
// The package has no picking logic. Only Compat follows requests: it maintains the series of other
// endpoint pickers. Handlers are safe for concurrent use.
package admin
