package events

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/events/zmtp"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/parts"
)

var testSource = block.Source{Endpoint: 3, Rank: 1}

func newIndex() *indexer.Index {
	return indexer.New(indexer.Options{Hasher: testHasher()})
}

func testHasher() block.Hasher { return block.NewHasher(block.Seed{1, 2, 3}) }

// rig is a translator with a real index behind it.
type rig struct {
	tr    *translate.Translator
	index *indexer.Index
}

func newRig() *rig {
	r := &rig{index: newIndex()}
	r.tr = translate.New(translate.Options{Source: testSource, Index: r.index, Hasher: testHasher(), Model: "model"})
	return r
}

func (r *rig) apply(events ...decode.Event) *block.Delta {
	d := new(block.Delta)
	r.tr.Translate(&decode.Batch{Events: events}, d)
	r.index.Apply(testSource, d)
	return d
}

// fakeEngine is an engine's event side in Go, with faults on demand: it loses
// live batches and replies, wraps its ring, and restarts on the same ports.
type fakeEngine struct {
	tb testing.TB

	mu        sync.Mutex
	rng       *rand.Rand
	pub       *zmtp.Pub
	router    *zmtp.Router
	first     uint64   // sequence of ring[0]
	ring      [][]byte // batches that can be replayed
	maxRing   int
	page      int  // tokens of a block
	truth     *rig // index content after all batches of this incarnation
	hashes    []block.EngineHash
	nextHash  uint64
	dropLive  int // percent
	dropReply int // percent
	mute      bool
	replays   int
}

func newFakeEngine(tb testing.TB, seed int64) *fakeEngine {
	e := &fakeEngine{tb: tb, rng: rand.New(rand.NewSource(seed)), maxRing: 10_000, page: 16}
	e.start("tcp://"+parts.FreeAddress(tb), "tcp://"+parts.FreeAddress(tb))
	tb.Cleanup(e.stop)
	return e
}

func (e *fakeEngine) start(pub, router string) {
	var err error
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pub, err = zmtp.ListenPub(pub, zmtp.PubOptions{}); err != nil {
		e.tb.Fatal(err)
	}
	if e.router, err = zmtp.ListenRouter(router, e.replay, zmtp.RouterOptions{}); err != nil {
		e.tb.Fatal(err)
	}
	e.truth, e.ring, e.first, e.hashes = newRig(), nil, 0, nil
}

func (e *fakeEngine) stop() {
	_ = e.pub.Close()
	_ = e.router.Close()
}

// restart ends this incarnation and starts another on the same ports, after some batches without a
// reader.
func (e *fakeEngine) restart(before int) {
	pub, router := "tcp://"+e.pub.Addr().String(), "tcp://"+e.router.Addr().String()
	e.stop()
	e.start(pub, router)
	e.mu.Lock()
	e.mute = true
	e.mu.Unlock()
	e.publish(before)
	e.mu.Lock()
	e.mute = false
	e.mu.Unlock()
}

// breakOff closes the connections of this incarnation. It publishes some batches before it accepts
// connections again.
func (e *fakeEngine) breakOff(unheard int) {
	pub := "tcp://" + e.pub.Addr().String()
	_ = e.pub.Close()
	e.publish(unheard)
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	if e.pub, err = zmtp.ListenPub(pub, zmtp.PubOptions{}); err != nil {
		e.tb.Fatal(err)
	}
}

func (e *fakeEngine) stream() Stream {
	return Stream{Events: "tcp://" + e.pub.Addr().String(), Replay: "tcp://" + e.router.Addr().String()}
}

// publish makes n batches of random stores and removals.
func (e *fakeEngine) publish(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range n {
		events := e.events()
		e.truth.apply(events...)
		payload := encodeEvents(events)
		seq := e.first + uint64(len(e.ring))
		e.ring = append(e.ring, payload)
		if len(e.ring) > e.maxRing {
			e.ring, e.first = e.ring[1:], e.first+1
		}
		if !e.mute && e.rng.Intn(100) >= e.dropLive {
			_ = e.pub.Send(nil, binary.BigEndian.AppendUint64(nil, seq), payload)
		}
	}
}

func (e *fakeEngine) events() []decode.Event {
	var out []decode.Event
	for range 1 + e.rng.Intn(3) {
		if len(e.hashes) > 50 && e.rng.Intn(2) == 0 {
			i := len(e.hashes) - 1 - e.rng.Intn(10)
			out = append(out, decode.Event{Kind: decode.BlockRemoved, Group: decode.NoGroup, Hashes: []block.EngineHash{e.hashes[i]}})
			e.hashes = append(e.hashes[:i], e.hashes[i+1:]...)
			continue
		}
		s := decode.Event{Kind: decode.BlockStored, Group: decode.NoGroup, BlockSize: uint32(e.page)}
		if len(e.hashes) > 0 && e.rng.Intn(3) > 0 {
			s.HasParent, s.Parent = true, e.hashes[e.rng.Intn(len(e.hashes))]
		}
		for range 1 + e.rng.Intn(3)*16/e.page {
			e.nextHash++
			h := block.EngineHash(e.nextHash * 0x9e3779b97f4a7c15)
			s.Hashes, e.hashes = append(s.Hashes, h), append(e.hashes, h)
			for range e.page {
				s.Tokens = append(s.Tokens, uint32(e.rng.Intn(1000)))
			}
		}
		out = append(out, s)
	}
	return out
}

func encodeEvents(events []decode.Event) []byte {
	p := msgp.AppendArrayHeader(nil, 3)
	p = msgp.AppendFloat64(p, float64(time.Now().UnixNano())/1e9)
	p = msgp.AppendArrayHeader(p, uint32(len(events)))
	hashes := func(list []block.EngineHash) {
		p = msgp.AppendArrayHeader(p, uint32(len(list)))
		for _, h := range list {
			p = msgp.AppendUint64(p, uint64(h))
		}
	}
	for _, e := range events {
		switch e.Kind {
		case decode.BlockRemoved:
			p = msgp.AppendString(msgp.AppendArrayHeader(p, 2), "BlockRemoved")
			hashes(e.Hashes)
		case decode.AllBlocksCleared:
			p = msgp.AppendString(msgp.AppendArrayHeader(p, 1), "AllBlocksCleared")
		case decode.BlockStored:
			p = msgp.AppendString(msgp.AppendArrayHeader(p, 5), "BlockStored")
			hashes(e.Hashes)
			if e.HasParent {
				p = msgp.AppendUint64(p, uint64(e.Parent))
			} else {
				p = msgp.AppendNil(p)
			}
			p = msgp.AppendArrayHeader(p, uint32(len(e.Tokens)))
			for _, t := range e.Tokens {
				p = msgp.AppendUint32(p, t)
			}
			p = msgp.AppendInt(p, int(e.BlockSize))
		}
	}
	return msgp.AppendInt(p, 0)
}

// replay answers like the ROUTER of an engine, with or without topic.
func (e *fakeEngine) replay(c *zmtp.RouterConn, frames [][]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replays++
	from := binary.BigEndian.Uint64(frames[1])
	topic := e.replays%2 == 0
	send := func(seq uint64, payload []byte) {
		number := binary.BigEndian.AppendUint64(nil, seq)
		if topic {
			_ = c.Send(nil, nil, number, payload)
		} else {
			_ = c.Send(nil, number, payload)
		}
	}
	for i, payload := range e.ring {
		seq := e.first + uint64(i)
		if seq < from || seq > from && e.rng.Intn(100) < e.dropReply {
			continue
		}
		send(seq, payload)
	}
	send(endMarker, nil)
}

// asked returns the number of requested replays.
func (e *fakeEngine) asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replays
}

// digest returns the expected digest of the index.
func (e *fakeEngine) digest() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return digestOf(e.truth.index)
}

func digestOf(x *indexer.Index) string {
	n, xor := x.Digest(testSource)
	return fmt.Sprintf("%d blocks %x", n, xor)
}
