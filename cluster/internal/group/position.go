package group

// Position is how far a source's log is known. The zero Position knows nothing.
type Position struct {
	Inc  uint64 // incarnation of the source, ordered; 0 when unknown
	Next uint64 // sequence number expected next: everything below is covered
	Lost uint64 // how many of the covered sequence numbers could not be had
}

// Known reports whether anything is known of the source.
func (p Position) Known() bool { return p.Inc != 0 }

// Exact reports whether everything before Next was seen.
func (p Position) Exact() bool { return p.Inc != 0 && p.Lost == 0 }

// Beats reports whether p is worth more than q: a later incarnation, else a
// further position, else fewer losses. It is a strict total order.
func (p Position) Beats(q Position) bool {
	if p.Inc != q.Inc {
		return p.Inc > q.Inc
	}
	if p.Next != q.Next {
		return p.Next > q.Next
	}
	return p.Lost < q.Lost
}

// Digest sums up a store's content for one source. Two stores at the same
// Position with different digests differ.
type Digest struct {
	Count uint64
	Xor   uint64
}

// Sum makes eight bytes of a digest, to be kept of many.
func (d Digest) Sum() uint64 { return d.Xor ^ d.Count*0x9e3779b97f4a7c15 }

// Fold makes four bytes of a digest: enough to notice that two differ.
func (d Digest) Fold() uint32 {
	x := d.Sum()
	return uint32(x ^ x>>32)
}
