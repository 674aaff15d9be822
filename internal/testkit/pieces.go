package testkit

import "google.golang.org/grpc/mem"

// Pieces splits raw into buffers of cut bytes, 0 for one buffer. The buffers are overwritten when
// freed, which exposes decoders that retain memory they do not own.
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

// poison is a pool that overwrites returned buffers.
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
