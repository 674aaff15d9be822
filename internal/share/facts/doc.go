// Package facts shares the state of each replica with its group:
//
//   - load in flight (Load) and queued requests (Queues)
//   - learned engine speeds (Costs)
//   - placements of prompts and sessions (Hints)
//   - models in use (Setup) and the seed of the index's keys (Seeds)
//   - tokenizer files of models (Files)
//
// Each state is small and absolute. The newest value of a replica replaces its last one, and its
// values are dropped when it is gone (Origins). A malformed value is an error and changes nothing.
//
// All exported methods are safe for concurrent use unless noted otherwise. Only the methods named
// Run start goroutines.
package facts
