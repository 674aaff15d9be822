package approx

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Defaults of Options.
const (
	DefaultChunkBytes    = 256
	DefaultEndpoints     = 4096
	DefaultCapacity      = 8 << 20 // about two million tokens of English text
	DefaultMaxChunks     = 4096    // 1 MiB of prompt at the default chunk size
	DefaultBytesPerToken = 4
)

// maxEndpoints bounds MaxEndpoints: a chunk counts its holders in 16 bits.
const maxEndpoints = math.MaxUint16

// Options configures an Index. A zero field means the default. Replicas that share entries must use
// the same Hasher and ChunkBytes.
type Options struct {
	Hasher        block.Hasher
	ChunkBytes    int // bytes of prompt for each chunk
	MaxEndpoints  int // EndpointIDs from this on are not tracked; at most 65535
	CapacityBytes int // bytes of prompt kept for an endpoint until SetCapacity
	MaxChunks     int // chunks used of a prompt; later ones are neither recorded nor matched
	BytesPerToken int // fills Run.Tokens
}

// Index records which prompts were sent to which endpoint, in chunks of fixed size. It replaces
// engine events if there are none, and bridges the time until they arrive: counting only entries of
// the last seconds, it is the speculative index.
//
// It keeps the most recently recorded chunks of each endpoint, up to the endpoint's capacity. A
// chunk is never evicted before later chunks of its prompt. Equal sequences of calls give equal
// states. All methods are safe for concurrent use; Match waits at most for the change of one chunk.
type Index struct {
	opts      Options
	shards    [numShards]shard
	endpoints []endpoint
	base      atomic.Int64 // of stamps; 0 until the first Record
	scratch   sync.Pool    // *scratch
}

// endpoint is the content of one endpoint. Lock it before a shard.
type endpoint struct {
	places []uint32 // scratch of Record, guarded by mu
	mu     sync.Mutex
	cap    int // chunks
	lru    lru
}

// scratch is the working memory of one Match.
type scratch struct{ wants []want }

// want is a Match's state for one endpoint.
type want struct {
	level uint32 // 0: not a candidate; n+1: holds the first n chunks
	since uint32 // stamp from which on an entry counts
	any   uint32 // level by entries of any age; 0: no candidate uses it
}

// New returns an empty Index. It starts nothing.
func New(o Options) *Index {
	orDefault := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orDefault(&o.ChunkBytes, DefaultChunkBytes)
	orDefault(&o.MaxEndpoints, DefaultEndpoints)
	orDefault(&o.CapacityBytes, DefaultCapacity)
	orDefault(&o.MaxChunks, DefaultMaxChunks)
	orDefault(&o.BytesPerToken, DefaultBytesPerToken)
	o.MaxEndpoints = min(o.MaxEndpoints, maxEndpoints)
	if o.Hasher == (block.Hasher{}) {
		o.Hasher = block.NewHasher(block.Seed{}) // the zero Hasher has no secret and hashes zeros to a constant
	}
	a := &Index{opts: o, endpoints: make([]endpoint, o.MaxEndpoints)}
	for i := range a.endpoints {
		a.endpoints[i].cap = o.CapacityBytes / o.ChunkBytes
	}
	a.scratch.New = func() any { return &scratch{wants: make([]want, o.MaxEndpoints)} }
	return a
}

// Keys appends the keys of the full chunks of q to dst, at most MaxChunks. A request computes them
// once, for Match and Record.
func (a *Index) Keys(q block.Query, dst []block.Key) []block.Key {
	size, key, b := a.opts.ChunkBytes, q.Root, q.Bytes
	for range min(len(b)/size, a.opts.MaxChunks) {
		key = a.opts.Hasher.Child(key, b[:size])
		dst = append(dst, key)
		b = b[size:]
	}
	return dst
}

// Match sets dst[i] to the leading run of keys that candidates[i] holds by entries recorded at or
// after notBefore[i] (same clock as Record's; to 67 ms). A nil notBefore counts every entry.
// Candidates are distinct; dst and notBefore have the length of candidates. Run.Tokens[TierGPU] is
// an estimate by BytesPerToken.
func (a *Index) Match(keys []block.Key, candidates []block.EndpointID, notBefore []int64, dst []block.Run) {
	a.MatchBoth(keys, candidates, notBefore, dst, nil)
}

// MatchBoth is Match that also sets all[i], unless all is nil, to the run by entries of any age, in
// the same walk.
func (a *Index) MatchBoth(keys []block.Key, candidates []block.EndpointID, notBefore []int64, dst, all []block.Run) {
	clear(dst[:len(candidates)])
	clear(all)
	base := a.base.Load()
	if base == 0 {
		return
	}
	scratch := a.scratch.Get().(*scratch)
	wants := scratch.wants
	for i, ep := range candidates {
		if int(ep) >= len(wants) {
			continue
		}
		w := want{level: 1}
		if notBefore != nil {
			w.since = stampAt(base, notBefore[i])
		}
		if all != nil {
			w.any = 1
		}
		wants[ep] = w
	}
	for i, key := range keys[:min(len(keys), a.opts.MaxChunks)] {
		if !a.shard(key).match(key, uint32(i+1), wants) {
			break
		}
	}
	for i, ep := range candidates {
		if int(ep) >= len(wants) {
			continue
		}
		dst[i] = a.run(wants[ep].level)
		if all != nil {
			all[i] = a.run(wants[ep].any)
		}
		wants[ep] = want{}
	}
	a.scratch.Put(scratch)
}

// run makes the Run of a level.
func (a *Index) run(level uint32) (r block.Run) {
	if level <= 1 {
		return r
	}
	r.Blocks = int32(level - 1)
	r.Bytes = r.Blocks * int32(a.opts.ChunkBytes)
	r.Tokens[block.TierGPU] = r.Bytes / int32(a.opts.BytesPerToken)
	return r
}

// Stamps are times in units of 2^26 ns (67 ms). The first recorded time is in the middle of the
// 32-bit range: 4.5 years in either direction.
const stampShift = 26

// stamp returns the stamp of a recorded time, at least 1.
func (a *Index) stamp(now int64) uint32 {
	if a.base.Load() == 0 {
		a.base.CompareAndSwap(0, (now>>stampShift-1<<31)|1)
	}
	return max(stampAt(a.base.Load(), now), 1)
}

func stampAt(base, t int64) uint32 {
	return uint32(min(max(t>>stampShift-base, 0), math.MaxUint32))
}

// Len returns the number of chunks held for ep.
func (a *Index) Len(ep block.EndpointID) int {
	if int(ep) >= len(a.endpoints) {
		return 0
	}
	e := &a.endpoints[ep]
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lru.live
}

// MemoryBytes returns the memory of entries, including free slots. It depends on the largest number
// of entries held at once, at 50 to 80 bytes each.
func (a *Index) MemoryBytes() int {
	n := 0
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.RLock()
		n += s.memory()
		s.mu.RUnlock()
	}
	for i := range a.endpoints {
		e := &a.endpoints[i]
		e.mu.Lock()
		n += 16 * cap(e.lru.entries)
		e.mu.Unlock()
	}
	return n
}
