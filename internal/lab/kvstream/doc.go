// Package kvstream publishes a simulated engine's KV-cache events as vLLM
// does: msgpack batches of three frames (topic, sequence number, payload) on a
// ZeroMQ PUB socket, and a ring of the last batches behind a ROUTER for those
// who missed some.
//
//  1. AppendBatch encodes the events of one step, in the form of a chosen vLLM
//     era.
//  2. Publisher.Publish gives the batch the next sequence number, keeps it in
//     the ring and sends it to every subscriber.
//  3. A replay request is answered with everything from its start number on
//     that the ring still holds, and an end marker.
//
// Faults lose, repeat or delay what is sent, and make replay lose batches or
// fall silent; the ring always has the truth.
//
// Concurrency: a Publisher may be used by any number of goroutines. Open
// starts goroutines, Close stops them and waits.
package kvstream
