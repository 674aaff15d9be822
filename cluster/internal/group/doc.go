// Package group holds the parts that all states of a member share: the list of peers, the current
// time, message types, the encoding and addressing of frames, and counters. Package core drives it;
// gauges, feeds and logs read it. cluster/DESIGN.md has the table of frames.
//
// Like core, it is pure and not safe for concurrent use. Decoding allocates only lists, which
// messages reuse; byte slices point into the frame. No input makes it panic or allocate more than a
// small multiple of the input's length.
package group
