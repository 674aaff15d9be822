package clustertest

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/cluster"
)

// Blocks is a LogStore that holds a set of block numbers per source, like an index: the blocks that
// were added and not removed. Snapshots have as many pages as the content needs.
type Blocks struct {
	mu    sync.Mutex
	of    map[string]*set
	roles map[string]cluster.Role
}

type set struct {
	blocks map[uint64]bool
	xor    uint64
}

func newSet() *set { return &set{blocks: map[uint64]bool{}} }

// NewBlocks returns an empty store.
func NewBlocks() *Blocks {
	return &Blocks{of: map[string]*set{}, roles: map[string]cluster.Role{}}
}

// removal marks a number in a payload as removed.
const removal = 1 << 63

func (s *set) apply(n uint64) {
	id := n &^ removal
	if add := n&removal == 0; add != s.blocks[id] {
		s.xor ^= mix(id)
		if add {
			s.blocks[id] = true
		} else {
			delete(s.blocks, id)
		}
	}
}

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Batch returns the batch of source's engine with sequence number seq. It stores eight blocks and
// removes two of the batch 64 earlier.
func Batch(source string, seq uint64) []byte {
	id := func(seq, i uint64) uint64 { return mix(xxhash.Sum64String(source)+seq*8+i) &^ removal }
	var b []byte
	for i := range uint64(8) {
		b = binary.LittleEndian.AppendUint64(b, id(seq, i))
	}
	for i := range uint64(2) {
		if seq >= 64 {
			b = binary.LittleEndian.AppendUint64(b, id(seq-64, i)|removal)
		}
	}
	return b
}

// truths caches the results of Truth, by source.
var truths = struct {
	sync.Mutex
	of map[string]*truth
}{of: map[string]*truth{}}

type truth struct {
	next uint64
	*set
}

// Truth returns the digest of all batches of source below next.
func Truth(source string, next uint64) cluster.Digest {
	truths.Lock()
	defer truths.Unlock()
	t := truths.of[source]
	if t == nil || t.next > next {
		t = &truth{0, newSet()}
		truths.of[source] = t
	}
	for ; t.next < next; t.next++ {
		t.applyAll(Batch(source, t.next))
	}
	return t.digest()
}

func (s *set) applyAll(payload []byte) {
	for ; len(payload) > 0; payload = payload[8:] {
		s.apply(binary.LittleEndian.Uint64(payload))
	}
}

func (s *set) digest() cluster.Digest {
	return cluster.Digest{Count: uint64(len(s.blocks)), Xor: s.xor}
}

func (b *Blocks) source(name string) *set {
	if b.of[name] == nil {
		b.of[name] = newSet()
	}
	return b.of[name]
}

// Apply implements cluster.LogStore.
func (b *Blocks) Apply(d cluster.Delta) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(d.Payload)%8 != 0 {
		return errPayload
	}
	b.source(d.Source).applyAll(d.Payload)
	return nil
}

// Reset implements cluster.LogStore.
func (b *Blocks) Reset(source string, _ uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, source)
}

// Digest implements cluster.LogStore.
func (b *Blocks) Digest(source string) cluster.Digest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.source(source).digest()
}

// Snapshot implements cluster.LogStore.
func (b *Blocks) Snapshot(source string, pageSize int) (cluster.Dump, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var pages [][]byte
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(b.source(source).blocks)), pageSize/8) {
		var p []byte
		for _, id := range chunk {
			p = binary.LittleEndian.AppendUint64(p, id)
		}
		pages = append(pages, p)
	}
	return Pages(pages), nil
}

// Stage implements cluster.LogStore.
func (b *Blocks) Stage(source string, _ uint64) (cluster.Stage, error) {
	s := newSet()
	return &Stage{
		Add: func(p []byte) error {
			if len(p)%8 != 0 {
				return errPayload
			}
			s.applyAll(p)
			return nil
		},
		Take: func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.of[source] = s
			return nil
		},
	}, nil
}

// Forget implements cluster.LogStore.
func (b *Blocks) Forget(source string) { b.Reset(source, 0) }

// Assign implements cluster.LogStore.
func (b *Blocks) Assign(source string, r cluster.Role) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roles[source] = r
}

// Role returns this replica's role for a source.
func (b *Blocks) Role(source string) cluster.Role {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roles[source]
}
