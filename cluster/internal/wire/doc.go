// Package wire is what members say to each other: frames, and how they are
// encoded. cluster/DESIGN.md has the table.
//
// Decoding allocates nothing but lists, which messages reuse; byte slices are
// parts of the frame. No input makes it panic, or allocate more than a small
// multiple of its length.
package wire
