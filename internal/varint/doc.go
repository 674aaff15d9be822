// Package varint decodes the encodings that replicas exchange: unsigned and signed varints,
// little-endian fixed-width numbers, and length-prefixed byte strings. They are encoded with
// encoding/binary.
//
// A [Reader] consumes values from the front of a buffer. Its first error is sticky: every later
// read returns zero, so a decoder checks for errors once, at the end. It copies and allocates
// nothing for any input. A Reader is a value and not safe for concurrent use.
package varint
