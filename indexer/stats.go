package indexer

import "github.com/grapevine-epp/grapevine/indexer/block"

// Stats describes the size of an Index.
type Stats struct {
	Nodes    int // blocks in the trie, however many hold them
	Entries  int // (block, source) pairs
	Sources  int
	Sets     int // distinct holder sets
	Branches int
	Bytes    int // memory of all parts
	Counts   Counts
}

// Stats returns the size of the index.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	st := Stats{Nodes: x.nodes.live - x.limbo.Pending(), Sources: len(x.sources), Sets: x.sets.Live() - 1, Branches: x.lists.n, Counts: x.counts}
	st.Bytes = x.nodes.bytes() + x.sets.Bytes() + x.table.Bytes() + x.lists.n*256 + x.lists.table.Bytes() + len(x.extra)*24
	for _, s := range x.sources {
		st.Entries += s.names.Len()
		st.Bytes += s.names.Bytes()
	}
	return st
}

// Blocks returns the number of blocks that a source holds.
func (x *Index) Blocks(name block.Source) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sources[name]; s != nil {
		return s.names.Len()
	}
	return 0
}
