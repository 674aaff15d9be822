// Package kvstream publishes the KV-cache events of a simulated engine as vLLM does. Batches are
// msgpack messages of three frames (topic, sequence number, payload) on a ZeroMQ PUB socket. A
// ROUTER socket replays recent batches from a ring.
//
//  1. [AppendBatch] encodes the events of one step in the format of a vLLM version.
//  2. [Publisher.Publish] assigns the next sequence number, keeps the batch in the ring and sends it
//     to every subscriber.
//  3. A replay request returns all batches from its start number that the ring still holds, then an
//     end marker.
//
// Faults drop, repeat or delay messages, and drop replayed batches or whole replies. The ring
// itself is always complete.
//
// A Publisher is safe for concurrent use. Open starts goroutines; Close stops them and waits.
package kvstream
