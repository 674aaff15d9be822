package indexer

import "sync/atomic"

const ptrChunk = 1024

// ptrTable is a growing array of pointers that readers index without locks.
// One writer.
type ptrTable[T any] struct {
	chunks atomic.Pointer[[]*[ptrChunk]atomic.Pointer[T]]
	n      uint32
}

func (t *ptrTable[T]) init() {
	chunks := []*[ptrChunk]atomic.Pointer[T]{}
	t.chunks.Store(&chunks)
}

func (t *ptrTable[T]) get(i uint32) *T {
	return (*t.chunks.Load())[i/ptrChunk][i%ptrChunk].Load()
}

func (t *ptrTable[T]) put(i uint32, v *T) {
	(*t.chunks.Load())[i/ptrChunk][i%ptrChunk].Store(v)
}

// add appends v and returns its index.
func (t *ptrTable[T]) add(v *T) uint32 {
	i := t.n
	t.n++
	if old := *t.chunks.Load(); int(i/ptrChunk) == len(old) {
		chunks := append(old[:len(old):len(old)], new([ptrChunk]atomic.Pointer[T]))
		t.chunks.Store(&chunks)
	}
	t.put(i, v)
	return i
}

func (t *ptrTable[T]) bytes() int { return len(*t.chunks.Load()) * ptrChunk * 8 }
