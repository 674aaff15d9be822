package lockfree

import "sync/atomic"

const tableChunk = 1024

// Table is a growing array of pointers that readers index without locks. There is one writer.
type Table[T any] struct {
	chunks atomic.Pointer[[]*[tableChunk]atomic.Pointer[T]]
	n      uint32
}

// Init empties the table. It must be called first.
func (t *Table[T]) Init() {
	chunks := []*[tableChunk]atomic.Pointer[T]{}
	t.chunks.Store(&chunks)
}

// Get returns the value at an index returned by Add. Any goroutine may call it.
func (t *Table[T]) Get(i uint32) *T {
	return (*t.chunks.Load())[i/tableChunk][i%tableChunk].Load()
}

// Put replaces the value at an index returned by Add.
func (t *Table[T]) Put(i uint32, v *T) {
	(*t.chunks.Load())[i/tableChunk][i%tableChunk].Store(v)
}

// Add appends v and returns its index.
func (t *Table[T]) Add(v *T) uint32 {
	i := t.n
	t.n++
	if old := *t.chunks.Load(); int(i/tableChunk) == len(old) {
		chunks := append(old[:len(old):len(old)], new([tableChunk]atomic.Pointer[T]))
		t.chunks.Store(&chunks)
	}
	t.Put(i, v)
	return i
}

// Bytes returns the memory of the table without its values.
func (t *Table[T]) Bytes() int { return len(*t.chunks.Load()) * tableChunk * 8 }
