// Package explain says why a request went, or would go, where.
//
//  1. A Decision is what a replica tells about one that it made (package
//     server), or what Offline.Decide makes of a configuration and a saved fleet
//     without any replica (offline.go).
//  2. WriteText prints one decision for people, WriteList one line for each of
//     several (text.go, columns.go), in tables of a bounded width (table.go).
//
// It decides nothing by itself: Offline asks the picker's own scheduler, which
// books and remembers nothing then.
//
// Functions hold no state. What they are given is not changed.
package explain
