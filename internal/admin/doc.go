// Package admin serves a replica's administration: metrics, liveness, readiness
// and status to whoever asks; and recent decisions, dry runs, recordings, reloads
// and profiles to those who may.
//
// A Client asks such a port.
//
//  1. Open listens: on the administration port, and on the control listener if
//     there is one (admin.go).
//  2. What an answer may do in a browser is bounded by its headers, and what a
//     request may hold by its length and its time (guard.go).
//  3. Pages that act, or tell of requests or memory, are guarded: on the
//     administration port they are for clients on this machine; the control
//     listener is a socket file, or wants a token or a client certificate. A page
//     of another site never gets through a browser (guard.go).
//  4. Every page is a function given in Options (pages.go).
//
// It knows HTTP and nothing about picking. Compat alone follows requests: it keeps
// the series that other endpoint pickers serve. Handlers are safe for concurrent use.
package admin
