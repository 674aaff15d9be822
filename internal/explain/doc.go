// Package explain prints why a request went, or would go, to an endpoint.
//
//  1. A Decision comes from a replica (package server), or from Offline.Decide, which applies a
//     configuration to a saved fleet without a replica (offline.go), or to a stored decision (past.go).
//  2. WriteText prints one decision, WriteList one line per decision (text.go, columns.go), in
//     tables of limited width (table.go).
//
// The package makes no decisions itself: Offline runs the picker's scheduler without side effects.
//
// Functions have no state and do not modify their arguments.
package explain
