package plugins

import (
	"sync"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// approxIndex is the index of one of several approx-prefix-cache-producers. It records the prompts
// that this replica sent to each endpoint, as many blocks as fit. It counts in the chunks in which
// prompts are compared, usually 64 tokens, and uses neither engine events nor other replicas' data.
// A configuration uses several to model caches of different sizes.
type approxIndex struct {
	capacity  int // chunks per endpoint
	most      int // chunks per prompt that are looked up
	chunk     int // tokens per chunk
	mu        sync.Mutex
	endpoints map[block.EndpointID]*chunkLRU
}

// minBlock is the minimum block size in tokens, as in other pickers.
const minBlock = 64

func newApproxIndex(p IndexParams) *plugin.Holdings {
	x := &approxIndex{capacity: p.LRUCapacityPerServer, chunk: max(p.BlockSizeTokens, minBlock), endpoints: map[block.EndpointID]*chunkLRU{}}
	if x.capacity <= 0 {
		x.capacity = defaultLRU
	}
	tokens := p.MaxPrefixTokensToMatch
	if tokens <= 0 && p.MaxPrefixBlocksToMatch <= 0 {
		tokens = defaultMatchTokens
	}
	if x.most = tokens / x.chunk; tokens <= 0 {
		x.most = p.MaxPrefixBlocksToMatch
	}
	return &plugin.Holdings{Fill: x.fill, Chosen: x.chosen}
}

const (
	defaultLRU         = 31250
	defaultMatchTokens = 131072
)

// chunks returns the number of the request's chunks that are looked up.
func (x *approxIndex) chunks(c *cycle.Cycle) int { return min(c.Chunks(), x.most) }

// fill counts the chunks that each candidate has, until no candidate has the next one.
func (x *approxIndex) fill(c *cycle.Cycle, held []float64) {
	clear(held)
	n := x.chunks(c)
	if n == 0 {
		return
	}
	in := float64(c.Request.InputTokens) / float64(c.Chunks())
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := 1; i <= n; i++ {
		key, ok := c.PrefixKey(i)
		if !ok {
			return
		}
		some := false
		for k := range held {
			if l := x.endpoints[c.At(k).ID]; l != nil && l.has(key) {
				held[k] += in
				some = true
			}
		}
		if !some {
			return
		}
	}
}

// chosen adds the request's chunks to ep's.
func (x *approxIndex) chosen(c *cycle.Cycle, ep *endpoint.Endpoint) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.endpoints[ep.ID]
	if l == nil {
		l = &chunkLRU{at: map[block.Key]int32{}}
		x.endpoints[ep.ID] = l
	}
	for i := 1; i <= x.chunks(c); i++ {
		if key, ok := c.PrefixKey(i); ok {
			l.add(key, x.capacity)
		}
	}
}

// chunkLRU is a set of keys with LRU eviction. Its slots form a linked ring in one slice.
type chunkLRU struct {
	at    map[block.Key]int32
	slots []chunkSlot // slot 0 is the head; its next is the newest
}

type chunkSlot struct {
	key        block.Key
	prev, next int32
}

func (l *chunkLRU) has(key block.Key) bool {
	_, ok := l.at[key]
	return ok
}

func (l *chunkLRU) add(key block.Key, capacity int) {
	if len(l.slots) == 0 {
		l.slots = append(l.slots, chunkSlot{})
	}
	i, known := l.at[key]
	switch {
	case known:
		l.unlink(i)
	case len(l.slots) <= capacity:
		i = int32(len(l.slots))
		l.slots = append(l.slots, chunkSlot{key: key})
	default:
		i = l.slots[0].prev
		l.unlink(i)
		delete(l.at, l.slots[i].key)
		l.slots[i].key = key
	}
	l.at[key] = i
	first := l.slots[0].next
	l.slots[i].prev, l.slots[i].next = 0, first
	l.slots[first].prev, l.slots[0].next = i, i
}

func (l *chunkLRU) unlink(i int32) {
	s := l.slots[i]
	l.slots[s.prev].next, l.slots[s.next].prev = s.next, s.prev
}
