// Package names maps the engine hashes of one source to index data.
//
// A Table holds entries: a hash names a node, in a tier, for a cache group, with a count. It grows
// by segments, so that no insertion moves much (table.go), and can be searched by part of the hash,
// which replicas exchange (short.go). Its slots can be frozen during writes, which then copy
// modified segments.
//
// The package knows no nodes and has no lock: the owner of a table serializes access.
package names
