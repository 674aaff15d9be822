// Package decode reads engines' KV-cache event batches, in every msgpack form in
// which vLLM, SGLang and TensorRT-LLM publish them: maps and positional arrays of
// several lengths, integer and byte hashes.
//
//  1. Batch.Decode walks the payload once and fills the batch's Events, which
//     point into the payload and into memory of the batch (decode.go, msgpack.go).
//  2. An event that differs from the one before in hashes, parent and tokens alone
//     is compared with it instead of read (shape.go).
//
// It gives no meaning to what it reads: which groups, media and adapters count is
// the translator's business (package translate).
//
// Invariants: nothing is allocated for a batch that is no larger than those before;
// whatever a publisher announces is bounded by the bytes that are there; an event
// that cannot be read costs itself and is counted.
//
// A Batch belongs to one goroutine at a time.
package decode
