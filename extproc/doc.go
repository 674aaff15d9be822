// Package extproc implements Envoy external processing: it turns each ext_proc stream, one per HTTP
// request, into a request.Request, calls a request.Chooser, and replies to Envoy.
//
// The path of one request:
//
//  1. Processor.Process is the gRPC handler. It passes each message to the
//     stream's state machine, on the handler's own goroutine.
//  2. Request headers open the request. Depending on the body mode they are
//     answered immediately (BUFFERED, BUFFERED_PARTIAL, STREAMED, NONE) or held
//     (FULL_DUPLEX_STREAMED, STREAMED with bodies sent early).
//  3. When the body is complete, or if there is none, the request is parsed and
//     the chooser is called.
//  4. The reply carries the destination in a header and in dynamic metadata,
//     then the body with the decision's changes, then the trailers.
//  5. Response messages are answered as they arrive. Usage, first token and
//     streamed tokens are extracted on the way (package answer).
//  6. The end of the response or of the stream calls Decision.Done once.
//
// Messages are encoded and decoded by hand (inbound.go, outbound.go), and bodies stay in gRPC's
// receive buffers. With the generated types, a 40 KiB request took almost twice the CPU time. Tests
// compare with the generated types.
//
// The package knows no endpoint, no prefix and no policy. It never connects to an engine and does
// not retry.
//
// Invariants:
//   - Decision.Done is called exactly once for every decision that the
//     chooser returned, however the stream ends.
//   - In full duplex the reply is headers, then body, then trailers. The
//     concatenated body equals the received one, except for the model's name, the
//     priority and the reporting options if the decision changes them. In the
//     response only the model's name may change.
//   - In every other mode there is exactly one reply per message.
//   - In observability mode nothing is sent.
//   - At most Options.MaxBody bytes of a request are held.
//
// A stream is owned by its handler goroutine and shares no mutable state with others. Processor and
// Server are safe for concurrent use.
package extproc
