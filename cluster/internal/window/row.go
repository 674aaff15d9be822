package window

// Row tells which frames of a peer came that it numbers from 1 on, one after the other. The zero
// value has seen none.
type Row struct {
	have  uint64 // all up to here
	above uint64 // bit i: have+2+i came too
	last  uint64 // the last that there is, as far as known
}

// Came notes that frame n did.
func (r *Row) Came(n uint64) {
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

// Covered notes that what frames up to n said is known otherwise.
func (r *Row) Covered(n uint64) {
	if n <= r.have {
		return
	}
	r.above >>= n - r.have - 1
	r.have, r.last = n, max(r.last, n)
	r.follow()
}

// follow goes on to what came early, after have was moved by one more than above.
func (r *Row) follow() {
	for ; r.above&1 != 0; r.have++ {
		r.above >>= 1
	}
	r.above >>= 1
}

// Sent notes that there are frames up to n.
func (r *Row) Sent(n uint64) { r.last = max(r.last, n) }

// Have returns up to which number all frames came.
func (r *Row) Have() uint64 { return r.have }

// Lacks reports whether there are frames that did not come.
func (r *Row) Lacks() bool { return r.last > r.have }
