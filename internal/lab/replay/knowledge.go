package replay

import (
	"context"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// blockKeys are the keys of blocks in the approximate index.
type blockKeys []block.Key

func (k blockKeys) of(blocks []trace.Block) blockKeys {
	for _, b := range blocks {
		x := uint64(b) + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		k = append(k, block.Key(x^x>>31))
	}
	return k
}

// residency records which engine holds which block: copies by block and engine, in GPU memory and,
// for engines with a host tier, in host memory.
type residency struct {
	engines int
	copies  []uint8
	host    []bool
}

func newResidency(blocks, engines int, host bool) *residency {
	r := &residency{engines: engines, copies: make([]uint8, blocks*engines)}
	if host {
		r.host = make([]bool, blocks*engines)
	}
	return r
}

func (r *residency) change(c cacheChange) {
	at := int(c.block)*r.engines + int(c.engine)
	switch {
	case c.all:
		r.forget(int(c.engine))
	case c.host:
		r.host[at] = c.stored
	case c.stored:
		r.copies[at] += b2i(r.copies[at] < 255)
	default:
		r.copies[at] -= b2i(r.copies[at] > 0)
	}
}

// forget removes all blocks of an engine.
func (r *residency) forget(engine int) {
	for at := engine; at < len(r.copies); at += r.engines {
		r.copies[at] = 0
		if r.host != nil {
			r.host[at] = false
		}
	}
}

func b2i(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// run returns how many leading blocks of a chain an engine holds in GPU
// memory, and how many behind them in either tier.
func (r *residency) run(chain []trace.Block, engine int) (gpu, host int) {
	for gpu < len(chain) && r.copies[int(chain[gpu])*r.engines+engine] > 0 {
		gpu++
	}
	if r.host == nil {
		return gpu, 0
	}
	for _, b := range chain[gpu:] {
		at := int(b)*r.engines + engine
		if !r.host[at] && r.copies[at] == 0 {
			break
		}
		host++
	}
	return gpu, host
}

// cacheChange is a block added to or removed from an engine's cache.
type cacheChange struct {
	at     time.Duration
	block  trace.Block
	engine int16
	stored bool
	host   bool
	all    bool // the engine's whole cache went
}

// matcher matches prompts for a replica's picker against the replica's data: cache events published
// some time ago, and decisions since then.
type matcher struct {
	replica *replica
	approx  *approx.Index
	ids     []block.EndpointID
	since   []int64
	runs    []block.Run
}

const always = -1 << 63

// maxQueued bounds for how long a queue makes a decision count, as in the daemon.
const maxQueued = 2 * time.Minute

// Match implements picker.Matcher.
func (m *matcher) Match(_ context.Context, r *request.Request, eps []*endpoint.Endpoint, held []cycle.PrefixMatch) {
	s := m.replica.sim
	m.ids, m.since = m.ids[:0], m.since[:0]
	m.runs = append(m.runs[:0], make([]block.Run, len(eps))...)
	now := s.clock()
	for _, ep := range eps {
		since := int64(always)
		if s.Index == Precise {
			l := m.replica.pool.LoadTracker().Load(ep, now)
			wait := time.Duration(ep.Cost().Wait(&l, now) * float64(time.Second))
			since = now.Add(-s.Speculate - min(wait, maxQueued)).UnixNano()
		}
		m.ids, m.since = append(m.ids, ep.ID), append(m.since, since)
	}
	if s.Index == Approximate || s.Speculate > 0 {
		m.approx.Match(r.ChunkKeys, m.ids, m.since, m.runs)
	}
	for k := range held {
		held[k].Run = m.runs[k]
	}
	if s.Index == Approximate {
		return
	}
	chain := m.replica.placing.blocks
	for k, ep := range eps {
		gpu, host := s.shared.known.run(chain, m.replica.stationOf[ep.ID])
		if tokens := int32((gpu + host) * s.Trace.BlockSize); tokens > held[k].Run.Total() {
			held[k].Run = block.Run{Blocks: int32(gpu + host), Bytes: tokens * bytesPerToken}
			held[k].Run.Tokens[block.TierGPU] = int32(gpu * s.Trace.BlockSize)
			held[k].Run.Tokens[block.TierCPU] = int32(host * s.Trace.BlockSize)
		}
	}
}

// Chosen implements picker.Matcher.
func (m *matcher) Chosen(r *request.Request, ep *endpoint.Endpoint) {
	s := m.replica.sim
	m.approx.Record(ep.ID, r.ChunkKeys, s.clock().UnixNano())
	m.replica.publish(message{kind: recordMessage, endpoint: ep, keys: r.ChunkKeys})
}

// Finished implements picker.Matcher.
func (m *matcher) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {
}

// bytesPerToken is the prompt bytes per token passed to the approximate index.
const bytesPerToken = 4

func newApprox(c *Case) *approx.Index {
	return approx.New(approx.Options{
		ChunkBytes: c.Trace.BlockSize * bytesPerToken, BytesPerToken: bytesPerToken, MaxEndpoints: c.Endpoints,
		CapacityBytes: max(int(float64(c.Engine.Blocks)*c.IndexScale), 1) * c.Trace.BlockSize * bytesPerToken,
	})
}

// cacheChanged records the events that an engine published at the end of a step.
func (sh *shared) cacheChanged(engineNumber int, at time.Duration, events []engine.Event) {
	for i := range events {
		e := &events[i]
		change := cacheChange{at: at, engine: int16(engineNumber), stored: e.Kind == engine.Stored, host: e.Host}
		if e.Host || e.Kind == engine.Removed {
			sh.change(change, e.Hash)
			continue
		}
		for _, h := range e.Hashes {
			sh.change(change, h)
		}
	}
}

func (sh *shared) change(c cacheChange, h engine.Hash) {
	if h == 0 || uint64(h) > uint64(sh.blocks) {
		return // a generated block that no later prompt shows
	}
	c.block = trace.Block(h - 1)
	sh.changes = append(sh.changes, c)
}
