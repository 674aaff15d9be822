// Package top draws the state of a replica group in a terminal.
//
//  1. A reader asks replicas for their status, as the status page does (reader.go).
//  2. A board merges their answers, and computes rates from two readings (board.go).
//  3. A frame is the board as lines of styled text for a size of the terminal (frame.go, table.go).
//  4. A session draws frames on a screen and handles keys (session.go).
//
// Texts of replicas, engines and clients are stripped of control characters before they reach a
// frame.
package top
