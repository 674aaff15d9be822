package indexer

import "github.com/grapevine-epp/grapevine/indexer/block"

// Overflowed reports whether blocks of an endpoint were refused, since its source was
// empty, because one source or all of them held as many as they may: what is known of
// it is not all that there is. It takes no lock.
func (x *Index) Overflowed(ep block.EndpointID) bool {
	return x.shown.Load().at(ep).over > 0
}

// MaxSourceBlocks is the number of blocks of one source beyond which stores are refused.
func (x *Index) MaxSourceBlocks() int { return x.o.MaxSourceBlocks }

// overflow notes that a block of a source was refused by a limit.
func (x *Index) overflow(s *source) {
	if s.over {
		return
	}
	s.over = true
	if !s.staged {
		x.show(s.name.Endpoint, 0, 1)
	}
}
