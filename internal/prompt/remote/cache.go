package remote

import (
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// breaker stops requests after consecutive failures, and allows one attempt after a while.
type breaker struct {
	limit   int
	openFor time.Duration

	mu       sync.Mutex
	failures int
	opened   time.Time
	probing  bool
}

// allow reports whether an attempt is permitted now.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.limit {
		return true
	}
	if b.probing || now.Sub(b.opened) < b.openFor {
		return false
	}
	b.probing = true
	return true
}

// report records the outcome of an attempt.
func (b *breaker) report(now time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
	if ok {
		b.failures = 0
		return
	}
	if b.failures++; b.failures >= b.limit {
		b.opened = now
	}
}

// withdraw cancels an attempt that ended without an outcome.
func (b *breaker) withdraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}

// cacheKey is a keyed hash of a body and its length.
type cacheKey struct {
	hash uint64
	size int
}

// cacheEntry is one rendered prompt in the list from newest to oldest.
type cacheEntry struct {
	key        cacheKey
	text       []byte
	info       prompt.Info
	prev, next *cacheEntry
}

// entryOverhead is the size of an entry without its text, in bytes.
const entryOverhead = 200

// renderCache keeps the prompts rendered last, bounded by their bytes.
type renderCache struct {
	limit int

	mu    sync.Mutex
	bytes int
	index map[cacheKey]*cacheEntry
	root  cacheEntry // root.next is the newest, root.prev the oldest
}

func (c *renderCache) get(dst []byte, key cacheKey) ([]byte, prompt.Info, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.index[key]
	if !ok {
		return nil, prompt.Info{}, false
	}
	c.unlink(e)
	c.push(e)
	return append(dst, e.text...), e.info, true
}

func (c *renderCache) put(key cacheKey, text []byte, info prompt.Info) {
	if len(text)+entryOverhead > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.index[key]; ok {
		c.drop(old)
	}
	e := &cacheEntry{key: key, text: append([]byte(nil), text...), info: info}
	c.index[key] = e
	c.bytes += len(text) + entryOverhead
	c.push(e)
	for c.bytes > c.limit {
		c.drop(c.root.prev)
	}
}

func (c *renderCache) push(e *cacheEntry) {
	if c.root.next == nil {
		c.root.next, c.root.prev = &c.root, &c.root
	}
	e.prev, e.next = &c.root, c.root.next
	e.prev.next, e.next.prev = e, e
}

func (c *renderCache) unlink(e *cacheEntry) { e.prev.next, e.next.prev = e.next, e.prev }

func (c *renderCache) drop(e *cacheEntry) {
	c.unlink(e)
	delete(c.index, e.key)
	c.bytes -= len(e.text) + entryOverhead
}
