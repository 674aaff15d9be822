// Package record reads the decisions of running replicas and writes a trace for the replay command.
//
//  1. [Run] opens a stream of lines at the admin port of each replica (record.go).
//  2. A tracer turns the chunks of prompts into hash ids of 512 tokens each, as soon as it has the
//     bytes per token of the model, and writes the lines (trace.go).
//
// Prompts do not leave the replicas: they send keyed hashes of chunks. The goroutines of Run end
// before it returns.
package record
