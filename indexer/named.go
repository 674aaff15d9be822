package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// Named looks up the blocks of one source by their names, while writers wait. It is
// what encodings need that leave out what their readers hold too (package wire).
type Named struct {
	x *Index
	s *source // nil: nothing is held
}

// Named begins look-ups. Release must follow, and nothing else of the index but Match
// may be called before. known false begins look-ups that find nothing.
func (x *Index) Named(name block.Source, known bool) Named {
	x.mu.Lock()
	n := Named{x: x}
	if known {
		n.s = x.sources[name]
	}
	return n
}

// Release ends the look-ups.
func (n Named) Release() { n.x.mu.Unlock() }

// Key returns the key of the blocks of a name; false when there is none, or when they
// have several keys.
func (n Named) Key(h block.EngineHash) (key block.Key, ok bool) {
	if n.s == nil {
		return 0, false
	}
	g, at := n.s.names.Find(uint64(h))
	for e, i := g.Next(uint64(h), at); e != nil; e, i = g.Next(uint64(h), i) {
		k := block.Key(n.x.nodes.at(e.Node).key.Load())
		if ok && k != key {
			return 0, false
		}
		key, ok = k, true
	}
	return key, ok
}

// ShortName is a name in four bytes.
type ShortName uint32

// Short returns the short name of a hash, and whether it is held and no other that is
// held has the same.
func (n Named) Short(h block.EngineHash) (ShortName, bool) {
	short := names.ShortOf(uint64(h))
	if n.s == nil {
		return ShortName(short), false
	}
	e, is := n.s.names.ByShort(short)
	return ShortName(short), is == names.One && e.Hash == uint64(h)
}

// ByShort returns the hash that has a short name, if there is exactly one. many tells
// that several have it, or that the table cannot tell.
func (n Named) ByShort(short ShortName) (h block.EngineHash, one, many bool) {
	if n.s == nil {
		return 0, false, false
	}
	e, is := n.s.names.ByShort(names.Short(short))
	if is == names.One {
		return block.EngineHash(e.Hash), true, false
	}
	return 0, false, is == names.Many
}

// Ahead reads what Short is going to need for hashes.
func (n Named) Ahead(hashes []block.EngineHash) {
	if n.s == nil {
		return
	}
	for _, h := range hashes {
		n.x.sink += n.s.names.Home(uint64(h)).Node
	}
}

// AheadShort reads what ByShort is going to need for one name.
func (n Named) AheadShort(short ShortName) {
	if n.s != nil {
		n.x.sink += n.s.names.TouchShort(names.Short(short))
	}
}
