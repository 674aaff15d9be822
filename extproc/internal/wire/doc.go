// Package wire encodes and decodes ext_proc messages without the generated types, which copy every
// header and every body.
//
//  1. NewCodec returns the codec for gRPC; other messages go through protobuf.
//  2. Inbound is a received message: headers point into it, a body stays in its receive buffer,
//     metadata stays encoded.
//  3. Outbound is a message to send: completely encoded, or an envelope around a referenced
//     chunk. RouteWriter encodes a request's destination.
//  4. Guards tracks streams whose bodies are being received. It ends those that take too long,
//     or the oldest when memory runs out. Buffers is the memory for receiving.
//
// No input makes a decoder panic. Decoded data points into the message.
package wire
