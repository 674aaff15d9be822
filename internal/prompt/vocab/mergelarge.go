package vocab

// candidate is a possible merge of the symbol at pos with its successor.
type candidate struct {
	rank uint32
	pos  int32
	left uint32 // the symbols when it was pushed: a changed one makes it stale
	next uint32
	id   uint32
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// mergeLarge merges a long piece in O(n log n): symbols in a linked list,
// candidates in a heap.
func mergeLarge(pairs *pairTable, dst, syms []uint32) []uint32 {
	n := len(syms)
	prev, next := make([]int32, n), make([]int32, n)
	heap := make([]candidate, 0, n)
	push := func(i int32) {
		j := next[i]
		if j < 0 {
			return
		}
		if rank, id := pairs.find(syms[i], syms[j]); rank != noMerge {
			heap = heapPush(heap, candidate{rank, i, syms[i], syms[j], id})
		}
	}
	for i := range syms {
		prev[i], next[i] = int32(i)-1, int32(i)+1
	}
	next[n-1] = -1
	for i := range syms {
		push(int32(i))
	}
	for len(heap) > 0 {
		var c candidate
		c, heap = heapPop(heap)
		j := next[c.pos]
		if j < 0 || syms[c.pos] != c.left || syms[j] != c.next {
			continue
		}
		syms[c.pos], syms[j] = c.id, noToken
		next[c.pos] = next[j]
		if next[j] >= 0 {
			prev[next[j]] = c.pos
		}
		next[j] = -1
		push(c.pos)
		if p := prev[c.pos]; p >= 0 {
			push(p)
		}
	}
	for i := int32(0); i >= 0; i = next[i] {
		dst = append(dst, syms[i])
	}
	return dst
}

func heapPush(h []candidate, c candidate) []candidate {
	h = append(h, c)
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	return h
}

func heapPop(h []candidate) (candidate, []candidate) {
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		l := 2*i + 1
		if l >= last {
			break
		}
		if r := l + 1; r < last && h[r].before(h[l]) {
			l = r
		}
		if !h[l].before(h[i]) {
			break
		}
		h[i], h[l] = h[l], h[i]
		i = l
	}
	return top, h
}
