package indexer

import "github.com/grapevine-epp/grapevine/indexer/block"

// Overflowed reports whether blocks of an endpoint were rejected since its source was empty,
// because one source or the index was full. Its data is then incomplete. It takes no lock.
func (x *Index) Overflowed(ep block.EndpointID) bool {
	return x.shown.Load().at(ep).over > 0
}

// MaxSourceBlocks returns the maximum number of blocks of one source.
func (x *Index) MaxSourceBlocks() int { return x.o.MaxSourceBlocks }

// overflow records that a block of a source was rejected by a limit.
func (x *Index) overflow(s *source) {
	if s.over {
		return
	}
	s.over = true
	if !s.staged {
		x.show(s.name.Endpoint, 0, 1)
	}
}
