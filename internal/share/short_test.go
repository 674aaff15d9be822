package share

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// decoding is an engine that decodes several sequences. A batch has a block for each of a few
// sequences, and removals of the oldest blocks.
type decoding struct {
	rng  *rand.Rand
	ends [24]block.StoredBlock
	held []block.EngineHash
	seq  uint64
}

func newDecoding(seed uint64) *decoding { return &decoding{rng: rand.New(rand.NewPCG(seed, 0))} }

// batch makes the next batch: that many stores of that many blocks, and removals of blocks beyond
// most.
func (e *decoding) batch(stores, blocks, most int) *events.Update {
	d := &block.Delta{}
	for range stores {
		end := &e.ends[e.rng.IntN(len(e.ends))]
		op := block.Op{Kind: block.OpStore, First: uint32(len(d.Blocks)), N: uint32(blocks), Root: true, From: 77}
		if end.Hash != 0 && e.rng.IntN(50) > 0 {
			op.Root, op.From, op.Parent = false, end.Key, end.Hash
		}
		for range blocks {
			*end = block.StoredBlock{
				Hash: block.EngineHash(e.rng.Uint64()), Key: block.Key(e.rng.Uint64()), Bytes: 56 + e.rng.Uint32N(16), Tokens: 16,
			}
			d.Blocks, e.held = append(d.Blocks, *end), append(e.held, end.Hash)
		}
		d.Ops = append(d.Ops, op)
	}
	if n := len(e.held) - most; n > 0 {
		d.Ops = append(d.Ops, block.Op{Kind: block.OpRemove, N: uint32(n)})
		d.Hashes = append(d.Hashes, e.held[:n]...)
		e.held = e.held[n:]
	}
	u := &events.Update{First: e.seq, Last: e.seq, Delta: d}
	e.seq++
	u.After = events.Position{Seq: e.seq, Sum: e.rng.Uint64()}
	return u
}

// read applies a batch to a store as if its replica had read it, and returns the payload.
func read(t testing.TB, st store, s *source, u *events.Update, version uint64) []byte {
	t.Helper()
	p, inc := s.encode(u, version)
	s.local.Store(&localDelta{inc, u.First, u.Delta})
	defer s.local.Store(nil)
	if err := st.Apply(cluster.Delta{Source: "a/0", First: u.First, Last: u.Last, Inc: inc, Payload: p, Local: true}); err != nil {
		t.Fatal(err)
	}
	return p
}

// A receiver of deltas has the same content as the reader, whether it started with the first delta
// or with a snapshot, from the reader or from a follower. Any receiver can take over as the reader.
func TestShortPayloads(t *testing.T) {
	engine := newDecoding(1)
	type replica struct {
		st store
		s  *source
	}
	open := func() replica {
		st, s := testStore(plan.Shared)
		return replica{st, s}
	}
	all := []replica{open(), open()}
	reader, short := 0, 0
	for i := range 3000 {
		u := engine.batch(1+i%5, 1+i%3, 2000)
		p := read(t, all[reader].st, all[reader].s, u, 1+uint64(min(1, i%400))) // an old member joins at times
		if payloadNeeds(p) == indexVersion {
			short++
		}
		for j, r := range all {
			if j == reader {
				continue
			}
			if err := r.st.Apply(cluster.Delta{Source: "a/0", First: u.First, Last: u.Last, Payload: p}); err != nil {
				t.Fatalf("batch %d at replica %d: %v", i, j, err)
			}
			if got, want := r.st.Digest("a/0"), all[reader].st.Digest("a/0"); got != want || r.s.head != all[reader].s.head {
				t.Fatalf("batch %d at replica %d: %+v %+v, want %+v %+v", i, j, got, r.s.head, want, all[reader].s.head)
			}
		}
		switch {
		case i%150 == 149: // a replica starts or restarts
			pages, err := pagesOf(all[engine.rng.IntN(len(all))].st, 1<<12)
			fresh := open()
			if err == nil {
				err = restore(fresh.st, pages)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(all) < 6 {
				all = append(all, fresh)
			} else if at := 1 + engine.rng.IntN(5); at != reader {
				all[at] = fresh
			}
		case i%70 == 69:
			reader = engine.rng.IntN(len(all))
		}
	}
	if short < 2900 {
		t.Errorf("only %d of 3000 payloads are short", short)
	}
}

// A payload that depends on unknown entries is applied as far as possible and reported as
// incomplete. A self-contained one is always complete.
func TestShortPayloadIncomplete(t *testing.T) {
	engine := newDecoding(2)
	a, as := testStore(plan.Shared)
	b, bs := testStore(plan.Shared)
	for range 50 {
		read(t, a, as, engine.batch(8, 1, 1000), indexVersion)
	}
	u := engine.batch(24, 1, 1000)
	late := cluster.Delta{Source: "a/0", First: u.First, Last: u.Last, Payload: read(t, a, as, u, indexVersion)}
	if err := b.Apply(late); !errors.Is(err, cluster.ErrUnsure) {
		t.Errorf("Apply() = %v, want %v", err, cluster.ErrUnsure)
	}
	if !bs.head.mayBeStale || !bs.head.have || bs.head.last != u.Last {
		t.Errorf("head %+v", bs.head)
	}
	engine.seq += 7 // batches that are lost
	whole := engine.batch(3, 2, 1000)
	p := read(t, a, as, whole, indexVersion)
	if err := b.Apply(cluster.Delta{Source: "a/0", First: whole.First, Last: whole.Last, Payload: p}); err != nil {
		t.Errorf("payload after a gap: %v", err)
	}
	if err := b.Apply(cluster.Delta{Source: "a/0", First: engine.seq, Last: engine.seq, Payload: append(p[:payloadHead:payloadHead], 0xff, 0xff)}); err == nil || errors.Is(err, cluster.ErrUnsure) {
		t.Errorf("malformed payload: %v", err)
	}
}

func FuzzShortPayload(f *testing.F) {
	engine := newDecoding(3)
	st, s := testStore(plan.Shared)
	for range 20 {
		f.Add(read(f, st, s, engine.batch(4, 2, 60), indexVersion))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		st, s := testStore(plan.Shared)
		engine := newDecoding(3)
		for range 10 {
			read(t, st, s, engine.batch(4, 2, 60), indexVersion)
		}
		_ = st.Apply(cluster.Delta{Source: "a/0", First: engine.seq, Last: engine.seq, Payload: b})
		n, _ := s.x.Digest(s.src)
		if n > 200+uint64(len(b)) {
			t.Fatalf("%d bytes decode to %d entries", len(b), n)
		}
	})
}

// BenchmarkPayload measures a batch's cost at the replicas: the reader encodes and applies it,
// others decode and apply it. "long" is the self-contained form.
func BenchmarkPayload(b *testing.B) {
	for _, c := range []struct {
		name           string
		stores, blocks int
		version        uint64
	}{
		{"steps/long", 8, 1, 1},
		{"steps/short", 8, 1, indexVersion},
		{"prompts/long", 1, 25, 1},
		{"prompts/short", 1, 25, indexVersion},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := payloadRun{b: b, version: c.version}
			r.prepare(c.stores, c.blocks)
			for b.Loop() {
				r.play()
			}
			changes := float64(len(r.updates) * c.stores * c.blocks * 2)
			b.ReportMetric(float64(r.size)/changes, "B/change")
			b.ReportMetric(float64(r.owner.Nanoseconds())/changes/float64(b.N), "owner-cpu-ns/change")
			b.ReportMetric(float64(r.follower.Nanoseconds())/changes/float64(b.N), "follower-cpu-ns/change")
		})
	}
}

// payloadRun is a content of 100,000 blocks and the batches that follow.
type payloadRun struct {
	b               *testing.B
	version         uint64
	pages           [][]byte
	updates         []*events.Update
	size            int
	owner, follower time.Duration
}

func (r *payloadRun) prepare(stores, blocks int) {
	const held = 100_000
	engine := newDecoding(4)
	st, s := testStore(plan.Shared)
	for len(engine.held) < held {
		read(r.b, st, s, engine.batch(stores, blocks, held), r.version)
	}
	var err error
	if r.pages, err = pagesOf(st, 1<<17); err != nil {
		r.b.Fatal(err)
	}
	for range 4096 {
		r.updates = append(r.updates, engine.batch(stores, blocks, held))
	}
}

func (r *payloadRun) play() {
	r.b.StopTimer()
	owner, s := testStore(plan.Shared)
	follower, _ := testStore(plan.Shared)
	if err := errors.Join(restore(owner, r.pages), restore(follower, r.pages)); err != nil {
		r.b.Fatal(err)
	}
	payloads := make([][]byte, len(r.updates))
	r.b.StartTimer()
	begun := used()
	for i, u := range r.updates {
		payloads[i] = read(r.b, owner, s, u, r.version)
	}
	between := used()
	r.size = 0
	for i, u := range r.updates {
		if err := follower.Apply(cluster.Delta{Source: "a/0", First: u.First, Last: u.Last, Payload: payloads[i]}); err != nil {
			r.b.Fatal(err)
		}
		r.size += len(payloads[i])
	}
	r.owner, r.follower = r.owner+between-begun, r.follower+used()-between
}
