// Package report writes what replays came to: tables, lines of CSV, JSON, plots
// and one HTML page.
//
//  1. Figures are the quantities, Report the rows of a sweep (report.go).
//  2. WriteTable, WriteCSV, WriteJSON and WriteHTML write it; Plots draws a figure
//     along each dimension that varies (plot.go, chart.go).
//
// It plays nothing: see internal/lab/replay.
//
// Concurrency: none of its functions keeps a state.
package report
