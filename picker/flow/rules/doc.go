// Package rules has the types of a queue's interface: its configuration, inputs, outputs and
// status. Configuration, metrics and gauge sharing need these types without the queue in package
// flow.
package rules
