package approx

import (
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Record records that ep was sent, at now (nanoseconds of any clock shared by all callers), the
// prompt whose Keys are keys. Chunks already held are refreshed; an earlier time does not set them
// back. The least recent chunks beyond the endpoint's capacity are evicted. Of a prompt longer than
// the capacity or MaxChunks, only the beginning is kept. A key 0 ends the prompt. An ep from
// MaxEndpoints on is ignored.
func (a *Index) Record(ep block.EndpointID, keys []block.Key, now int64) {
	if int(ep) >= len(a.endpoints) {
		return
	}
	h := newHolder(ep, a.stamp(now))
	e := &a.endpoints[ep]
	e.mu.Lock()
	defer e.mu.Unlock()
	keys = keys[:min(len(keys), a.opts.MaxChunks, e.cap)]
	if i := slices.Index(keys, 0); i >= 0 {
		keys = keys[:i]
	}
	// Last chunk first, so that each is less recent than the one it builds on.
	places, missing := e.places[:0], 0
	for _, key := range slices.Backward(keys) {
		place, held := a.shard(key).touch(key, h)
		if held {
			e.lru.refresh(place)
		} else {
			place = none
			missing++
		}
		places = append(places, place)
	}
	e.places = places
	if missing == 0 {
		return
	}
	// Known chunks are the newest now, so none of these is evicted.
	a.evict(ep, e, e.cap-missing)
	for i, key := range slices.Backward(keys) {
		if place := places[len(keys)-1-i]; place != none {
			e.lru.refresh(place)
		} else if place, held := a.shard(key).touch(key, h); held { // it occurs twice in the prompt
			e.lru.refresh(place)
		} else {
			a.shard(key).add(key, h, e.lru.push(key, e.cap))
		}
	}
}

// none is the position of an unknown chunk, which is the circle's anchor.
const none = 0

// evict removes the least recent chunks of ep until it holds at most most.
func (a *Index) evict(ep block.EndpointID, e *endpoint, most int) {
	for e.lru.live > max(most, 0) {
		place, key := e.lru.oldest()
		a.shard(key).remove(key, ep)
		e.lru.drop(place)
	}
}

// SetCapacity limits the records of ep, in bytes of prompt, until Forget. It takes effect
// immediately.
func (a *Index) SetCapacity(ep block.EndpointID, bytes int) {
	if int(ep) >= len(a.endpoints) {
		return
	}
	e := &a.endpoints[ep]
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cap = max(bytes, 0) / a.opts.ChunkBytes
	a.evict(ep, e, e.cap)
}

// Truncate removes from ep the chunks of keys that are not entirely within the first fromBytes of
// the prompt, after the engine reported that it did not have them. Other prompts that share the
// removed chunks end there too.
func (a *Index) Truncate(ep block.EndpointID, keys []block.Key, fromBytes int) {
	from := max(fromBytes, 0) / a.opts.ChunkBytes
	if int(ep) >= len(a.endpoints) || from >= len(keys) {
		return
	}
	e := &a.endpoints[ep]
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys[from:] {
		if place, held := a.shard(key).remove(key, ep); held {
			e.lru.drop(place)
		}
	}
}

// Forget removes all records of ep and resets its capacity to the default, before the EndpointID is
// reused.
func (a *Index) Forget(ep block.EndpointID) {
	if int(ep) >= len(a.endpoints) {
		return
	}
	e := &a.endpoints[ep]
	e.mu.Lock()
	defer e.mu.Unlock()
	a.evict(ep, e, 0)
	e.lru = lru{}
	e.cap = a.opts.CapacityBytes / a.opts.ChunkBytes
}
