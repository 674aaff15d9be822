package testkit

import "google.golang.org/grpc/mem"

// Pieces cuts raw into buffers of so many bytes, 0 for one, that are overwritten when
// they are freed: a decoder that keeps what it does not own is found out.
func Pieces(raw []byte, cut int) (data mem.BufferSlice) {
	if cut <= 0 {
		cut = len(raw)
	}
	for first := true; first || len(raw) > 0; first = false {
		n := min(cut, len(raw))
		b := poison{}.Get(n)
		copy(*b, raw)
		data, raw = append(data, mem.NewBuffer(b, poison{})), raw[n:]
	}
	return data
}

// poison is a pool that overwrites what it gets back.
type poison struct{}

// Get implements mem.BufferPool.
func (poison) Get(n int) *[]byte {
	b := make([]byte, n, max(n, 4096))
	return &b
}

// Put implements mem.BufferPool.
func (poison) Put(b *[]byte) {
	all := (*b)[:cap(*b)]
	for i := range all {
		all[i] = 0xDD
	}
}
