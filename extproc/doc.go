// Package extproc speaks Envoy external processing and nothing else: it turns
// one side stream per HTTP request into one request.Request, asks a
// request.Chooser where the request goes, and tells Envoy.
//
// The path of one request:
//
//  1. Processor.Process is the gRPC handler: it receives messages and hands
//     each to the stream's state machine, on the handler's own goroutine.
//  2. Request headers open the request. Depending on the body mode they are
//     answered at once (BUFFERED, BUFFERED_PARTIAL, STREAMED, NONE) or held
//     (FULL_DUPLEX_STREAMED, STREAMED with bodies sent early).
//  3. When the body is complete, or when there is none, the request is parsed
//     and chosen for.
//  4. The reply carries the destination in a header and in dynamic metadata,
//     then the body, byte for byte but for what the decision changes, then the
//     trailers.
//  5. Response messages are answered as they come. Usage, first token and
//     streamed tokens are read on the way (package answer).
//  6. The end of the response, or of the stream, calls Decision.Done once.
//
// Messages are decoded and encoded by hand (inbound.go, outbound.go) and bodies
// stay in the buffers that gRPC received them in: with the generated types a
// 40 KiB request cost almost twice the processor time. The generated types are
// what the tests compare with.
//
// What it does not do: it knows no endpoint, no prefix and no policy; it never
// talks to an engine; it does not retry.
//
// Invariants:
//   - Decision.Done is called exactly once for every decision that the
//     chooser returned, however the stream ends.
//   - In full duplex the answer is headers, then body, then trailers, and the
//     concatenated body is the received one unless the decision changes the model's
//     name, the priority or what is reported. Of the answer to such a request the model's name alone changes.
//   - In every other mode there is exactly one answer for each message.
//   - In observability mode nothing is ever sent.
//   - No more than Options.MaxBody bytes of a request are held.
//
// Concurrency: a stream is owned by its handler goroutine and shares nothing
// mutable with others; Processor and Server are safe for concurrent use.
package extproc
