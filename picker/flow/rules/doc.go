// Package rules has the values of a queue: the rules that it goes by, what it is asked and
// told, and how it describes itself. Configuration, metrics and the sharing of gauges need
// these, and not the queue, which is in package flow.
package rules
