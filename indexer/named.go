package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/names"
)

// Named looks up a source's blocks by name while writers wait. Encodings that omit blocks known to
// their readers use it (package wire).
type Named struct {
	x *Index
	s *source // nil: no entry
}

// Named begins lookups. Release must follow, and no other method of the index except Match may be
// called before. With known false, lookups find nothing.
func (x *Index) Named(name block.Source, known bool) Named {
	x.mu.Lock()
	n := Named{x: x}
	if known {
		n.s = x.sources[name]
	}
	return n
}

// Release ends the lookups.
func (n Named) Release() { n.x.mu.Unlock() }

// Key returns the key of a named block; false if there is none, or several keys have the name.
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

// Short returns the short name of a hash, and whether the source has the hash and the short name is
// unique.
func (n Named) Short(h block.EngineHash) (ShortName, bool) {
	short := names.ShortOf(uint64(h))
	if n.s == nil {
		return ShortName(short), false
	}
	e, is := n.s.names.ByShort(short)
	return ShortName(short), is == names.One && e.Hash == uint64(h)
}

// ByShort returns the hash with a short name, if there is exactly one. many means that several have
// it, or that the table cannot decide.
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

// Ahead prefetches the data that Short needs for hashes.
func (n Named) Ahead(hashes []block.EngineHash) {
	if n.s == nil {
		return
	}
	for _, h := range hashes {
		n.x.sink += n.s.names.Home(uint64(h)).Node
	}
}

// AheadShort prefetches the data that ByShort needs for one name.
func (n Named) AheadShort(short ShortName) {
	if n.s != nil {
		n.x.sink += n.s.names.TouchShort(names.Short(short))
	}
}
