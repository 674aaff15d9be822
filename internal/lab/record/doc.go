// Package record follows running replicas and writes what they decided as a
// trace that replay reads.
//
//  1. Run opens a stream of lines at each replica's administration port
//     (record.go).
//  2. A tracer turns prompts' chunks into hash ids of 512 tokens each, once it
//     knows how long a model's tokens are, and writes the lines (trace.go).
//
// No text of a prompt reaches it: replicas send keyed hashes of chunks.
//
// Run's goroutines end before it returns.
package record
