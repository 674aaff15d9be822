// Package knowledge defines how reliable the data about an engine's cache is: per event stream, per
// endpoint, and per source shared by replicas.
//
// A single type makes the states of different components comparable and gives users one set of
// terms. The package imports nothing.
package knowledge
