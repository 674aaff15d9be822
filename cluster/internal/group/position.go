package group

// Position is how much of a source's log is known. The zero value means that nothing is known.
type Position struct {
	Inc  uint64 // incarnation of the source, ordered; 0 when unknown
	Next uint64 // sequence number expected next: everything below is covered
	Lost uint64 // how many of the covered sequence numbers could not be recovered
}

// Known reports whether the source has a position.
func (p Position) Known() bool { return p.Inc != 0 }

// Exact reports whether no sequence number before Next was lost.
func (p Position) Exact() bool { return p.Inc != 0 && p.Lost == 0 }

// Exceeds reports whether p is better than q: a later incarnation, then a higher Next, then fewer
// losses. It is a strict total order.
func (p Position) Exceeds(q Position) bool {
	if p.Inc != q.Inc {
		return p.Inc > q.Inc
	}
	if p.Next != q.Next {
		return p.Next > q.Next
	}
	return p.Lost < q.Lost
}

// Digest summarizes a store's content for one source. Two stores at the same Position with
// different digests hold different content.
type Digest struct {
	Count uint64
	Xor   uint64
}

// Sum compresses a digest to eight bytes, for storage in large numbers.
func (d Digest) Sum() uint64 { return d.Xor ^ d.Count*0x9e3779b97f4a7c15 }

// Fold compresses a digest to four bytes, enough to detect a difference.
func (d Digest) Fold() uint32 {
	x := d.Sum()
	return uint32(x ^ x>>32)
}
