package engine

// hostTier is the part of the prefix cache in host memory: names in order of
// last use, as many as fit.
type hostTier struct {
	at         map[Hash]int32
	name       []Hash
	next, prev []int32 // ring; index len(name) is the sentinel, its next the oldest
	used       int
}

func newHostTier(blocks int) *hostTier {
	t := &hostTier{at: map[Hash]int32{}, name: make([]Hash, blocks), next: make([]int32, blocks+1), prev: make([]int32, blocks+1)}
	end := int32(blocks)
	t.next[end], t.prev[end] = end, end
	return t
}

// use reports whether the tier has a block, and makes it the latest used.
func (t *hostTier) use(h Hash) bool {
	i, ok := t.at[h]
	if ok {
		t.unlink(i)
		t.append(i)
	}
	return ok
}

// put adds a block. It returns the evicted block, if any, and whether the block is new to the tier.
func (t *hostTier) put(h Hash) (gone Hash, evicted, added bool) {
	if t.use(h) {
		return 0, false, false
	}
	i := int32(t.used)
	if t.used < len(t.name) {
		t.used++
	} else {
		i = t.next[len(t.name)]
		gone, evicted = t.name[i], true
		delete(t.at, gone)
		t.unlink(i)
	}
	t.name[i], t.at[h] = h, i
	t.append(i)
	return gone, evicted, true
}

func (t *hostTier) unlink(i int32) {
	t.next[t.prev[i]], t.prev[t.next[i]] = t.next[i], t.prev[i]
}

func (t *hostTier) append(i int32) {
	end := int32(len(t.name))
	last := t.prev[end]
	t.next[last], t.prev[i] = i, last
	t.next[i], t.prev[end] = end, i
}
