package approx

import (
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// numShards is the number of independently locked parts, chosen by the low
// bits of a key.
const (
	shardBits = 8
	numShards = 1 << shardBits
)

func (a *Index) shard(key block.Key) *shard { return &a.shards[key%numShards] }

// holder is an endpoint (32 bits) and the stamp of its last recording (32) in
// one word, so that sorted holders are sorted by endpoint.
type holder uint64

func newHolder(ep block.EndpointID, stamp uint32) holder { return holder(ep)<<32 | holder(stamp) }

func (h holder) endpoint() block.EndpointID { return block.EndpointID(h >> 32) }

// shard is a table of chunks under one lock, which every method here
// takes for its own length.
type shard struct {
	mu sync.RWMutex
	table
	_ [16]byte // to a multiple of the cache line
}

// match raises to level+1 each want that stands at level and whose endpoint holds key since then,
// and reports whether there was one.
func (s *shard) match(key block.Key, level uint32, wants []want) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nd := s.find(key)
	if nd == nil {
		return false
	}
	if nd.class == 0 {
		return matchHolder(nd.one, level, wants)
	}
	found := false
	for _, h := range s.list(nd) {
		if matchHolder(h, level, wants) {
			found = true
		}
	}
	return found
}

func matchHolder(h holder, level uint32, wants []want) (found bool) {
	w := &wants[h.endpoint()]
	if w.level == level && uint32(h) >= w.since {
		w.level, found = level+1, true
	}
	if w.any == level {
		w.any, found = level+1, true
	}
	return found
}

// touch sets the entry of h's endpoint to the later stamp and returns its place
// in the endpoint's order, if there is one.
func (s *shard) touch(key block.Key, h holder) (place uint32, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, at := s.locate(s.find(key), h.endpoint())
	if was == nil {
		return 0, false
	}
	*was = max(*was, h)
	return *at, true
}

// add enters h, whose endpoint does not hold key, with its place in the
// endpoint's order.
func (s *shard) add(key block.Key, h holder, place uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nd := s.find(key); nd != nil {
		s.insert(nd, h, place)
		return
	}
	s.put(node{key: key, one: h, place: place, n: 1})
}

// remove takes the entry of ep away and returns the place it had.
func (s *shard) remove(key block.Key, ep block.EndpointID) (place uint32, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nd := s.find(key)
	was, at := s.locate(nd, ep)
	if was == nil {
		return 0, false
	}
	place = *at
	s.cut(nd, ep)
	return place, true
}
