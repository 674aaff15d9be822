// Package wire reads and writes the messages of ext_proc without the generated
// types, which copy every header and every body.
//
//  1. Codec is what gRPC uses for the service; other messages go through protobuf.
//  2. Inbound is a received message: headers stay in it, a body stays in the buffer
//     that it was received in, metadata stays encoded.
//  3. Outbound is a message to be sent: encoded as a whole, or an envelope around a
//     chunk that is referenced. RouteWriter encodes where a request goes.
//  4. Guards knows the streams whose bodies are still arriving, and ends those that
//     take too long, or the oldest ones when memory runs out; Buffers is the memory
//     that they arrive in.
//
// No input makes a decoder panic; what it keeps refers to the message.
package wire
