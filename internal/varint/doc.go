// Package varint reads the encodings in which replicas tell each other things: unsigned
// and signed varints, fixed-width numbers in little endian, and byte strings preceded by
// their length. encoding/binary writes them.
//
// A [Reader] takes values from the front of a buffer. Its first error sticks: every later
// read gives zero, so a decoder checks once, at its end. Nothing is copied or allocated,
// whatever the input. A Reader is a value and not safe for concurrent use.
package varint
