// Package ticks gives periodic work of one process common instants.
//
// Timers with unrelated phases wake an idle process once each, and every wake-up costs several context
// switches of the Go runtime. Work that is due at whole multiples of its period since the start of the
// process shares its wake-ups: periods of 250 ms, 500 ms and 1 s together cost four per second.
//
// The instants depend on the start of the process, so replicas do not act at the same moment.
package ticks
