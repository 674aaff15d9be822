package window

// Row tracks which frames of one peer were received. The peer numbers them consecutively from 1.
// The zero value has received none.
type Row struct {
	have  uint64 // every frame up to here was received
	above uint64 // bit i: frame have+2+i was received
	last  uint64 // highest frame number known to exist
}

// MarkReceived records that frame n was received.
func (r *Row) MarkReceived(n uint64) {
	r.last = max(r.last, n)
	switch d := n - r.have; {
	case n <= r.have:
	case d == 1:
		r.have++
		r.follow()
	case d < 66:
		r.above |= 1 << (d - 2)
	}
}

// MarkCovered marks frames up to n as received: another message carried their content.
func (r *Row) MarkCovered(n uint64) {
	if n <= r.have {
		return
	}
	r.above >>= n - r.have - 1
	r.have, r.last = n, max(r.last, n)
	r.follow()
}

// follow advances have over frames that were received early. The caller has just raised have to one
// below bit 0 of above.
func (r *Row) follow() {
	for ; r.above&1 != 0; r.have++ {
		r.above >>= 1
	}
	r.above >>= 1
}

// Sent records that the peer has sent frames up to n.
func (r *Row) Sent(n uint64) { r.last = max(r.last, n) }

// Have returns the largest n for which frames 1 to n were all received.
func (r *Row) Have() uint64 { return r.have }

// HasGaps reports whether a frame is missing.
func (r *Row) HasGaps() bool { return r.last > r.have }
