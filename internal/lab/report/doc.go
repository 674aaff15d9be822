// Package report writes the results of replays as tables, CSV, JSON, plots and one HTML page.
//
//  1. Figures are the quantities, Report the rows of a sweep (report.go).
//  2. WriteTable, WriteCSV, WriteJSON and WriteHTML write it; Plots draws a figure
//     along each dimension that varies (plot.go, chart.go).
//
// It replays nothing: see internal/lab/replay.
//
// Concurrency: its functions keep no state.
package report
