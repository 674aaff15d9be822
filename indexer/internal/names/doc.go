// Package names maps the engine hashes of one source to what the index keeps of them.
//
// A Table holds entries: a hash names a node, in a tier, for a cache group, so many
// times. It grows by segments, so that no insertion moves much (table.go), and can
// be searched by a part of the hash (short.go), which is what replicas send each
// other. Its slots can be frozen while it is written to, which copies what changes.
//
// It knows nothing of nodes, and has no lock: whoever owns a table serialises.
package names
