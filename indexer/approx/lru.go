package approx

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// lru is the order in which one endpoint's chunks were last recorded: a
// doubly linked circle in one array, without pointers. Place 0 is the circle's
// anchor; a chunk keeps its place until it is dropped, so its holder in the
// shard can name it.
type lru struct {
	entries []lruEntry
	free    uint32 // first free place, chained through older; 0 for none
	live    int
}

type lruEntry struct {
	key          block.Key
	newer, older uint32 // anchor: newer is the oldest chunk, older the newest
}

const minEntries = 32

// push enters key as the newest and returns its place. The array grows by
// doubling, to no more than most chunks need.
func (l *lru) push(key block.Key, most int) uint32 {
	place := l.free
	if place != 0 {
		l.free = l.entries[place].older
	} else {
		place = l.extend(most)
	}
	l.entries[place].key = key
	l.link(place)
	l.live++
	return place
}

func (l *lru) extend(most int) uint32 {
	n := len(l.entries)
	if n == cap(l.entries) {
		grown := make([]lruEntry, max(n, 1), max(n+1, min(max(2*n, minEntries), most+1), 2))
		copy(grown, l.entries)
		l.entries, n = grown, len(grown)
	}
	l.entries = l.entries[:n+1]
	return uint32(n)
}

// refresh makes the chunk at place the newest.
func (l *lru) refresh(place uint32) {
	l.unlink(place)
	l.link(place)
}

// oldest returns the chunk recorded longest ago; there is one.
func (l *lru) oldest() (uint32, block.Key) {
	place := l.entries[0].newer
	return place, l.entries[place].key
}

// drop frees a place.
func (l *lru) drop(place uint32) {
	l.unlink(place)
	l.entries[place] = lruEntry{older: l.free}
	l.free = place
	l.live--
}

func (l *lru) link(place uint32) {
	anchor := &l.entries[0]
	e := &l.entries[place]
	e.newer, e.older = 0, anchor.older
	l.entries[anchor.older].newer = place
	anchor.older = place
}

func (l *lru) unlink(place uint32) {
	e := l.entries[place]
	l.entries[e.newer].older = e.older
	l.entries[e.older].newer = e.newer
}
