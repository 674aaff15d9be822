// Package group is what all states of a member have in common: who is there,
// what time it is, what members say to each other, how frames are addressed and
// encoded, and what is counted. Package core feeds it; gauges, feeds and logs
// read it. cluster/DESIGN.md has the table of frames.
//
// Like core it is pure, and not safe for concurrent use. Decoding allocates
// nothing but lists, which messages reuse; byte slices are parts of the frame.
// No input makes it panic, or allocate more than a small multiple of its length.
package group
