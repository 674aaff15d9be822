// Package decode parses engines' KV-cache event batches, in every msgpack format of vLLM, SGLang
// and TensorRT-LLM: maps and positional arrays of several lengths, integer and byte hashes.
//
//  1. Batch.Decode reads the payload once and fills the batch's Events, which
//     point into the payload and into memory of the batch (decode.go, msgpack.go).
//  2. An event that differs from an earlier one only in hashes, parent and tokens
//     is compared with it instead of parsed (shape.go).
//
// It does not interpret events: package translate decides which groups, media and adapters count.
//
// Invariants: a batch no larger than earlier ones causes no allocation. Announced lengths are
// bounded by the available bytes. A malformed event is counted and skipped.
//
// A Batch must be used by one goroutine at a time.
package decode
