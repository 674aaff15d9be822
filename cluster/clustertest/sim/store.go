package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// chain is a store's content for one source: the hash of all applied payloads, in order.
type chain struct{ count, hash uint64 }

func (c chain) apply(v uint64) chain {
	x := c.hash ^ v ^ 0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return chain{c.count + 1, x ^ x>>31}
}

var errInjected = errors.New("sim: injected")

// store is a member's LogStore.
type store struct {
	m       *member
	content map[string]chain
	tails   map[string]*tails
	version uint64  // of the log
	fail    float64 // fraction of remote deltas that fail to apply
	applied int
	last    *stage
	staged  int // stages being built
	stages  int // stages ever started
}

// Apply implements logs.LogStore.
func (s *store) Apply(d logs.Delta) error {
	if len(d.Payload) != plainSize && len(d.Payload) != shortSize {
		return fmt.Errorf("sim: payload of %d bytes", len(d.Payload))
	}
	s.m.touch(d.Source)
	if s.fail > 0 && !d.Local && s.m.w.rng.Float64() < s.fail {
		s.m.w.Stats.Injected++
		s.tailsOf(d.Source).known = false
		return errInjected
	}
	v, err := s.value(d)
	s.applied++
	s.content[d.Source] = s.content[d.Source].apply(v)
	return err
}

// Reset implements logs.LogStore.
func (s *store) Reset(source string, _ uint64) {
	s.m.touch(source)
	delete(s.content, source)
	delete(s.tails, source)
}

// Digest implements logs.LogStore.
func (s *store) Digest(source string) logs.Digest {
	c := s.content[source]
	return logs.Digest{Count: c.count, Xor: c.hash}
}

// Snapshot splits a content into several pages. Each has its number and the total, so that a stage
// detects a mixture.
func (s *store) Snapshot(source string, _ int) (logs.Dump, error) {
	c := s.content[source]
	d := &dump{chain: c}
	if c.count > 0 {
		d.pages = 1 + uint16(c.count%7) + uint16(s.m.w.plan.Pages)
	}
	if s.version >= shortSince {
		d.tails = s.tailsOf(source).append(nil)
	}
	s.m.w.Stats.Snapshots++
	return d, nil
}

// dump is a content being encoded in pages.
type dump struct {
	chain
	pages, next uint16
	tails       []byte // on the last page
}

// Next implements logs.Dump.
func (d *dump) Next() ([]byte, error) {
	if d.next == d.pages {
		return nil, nil
	}
	p := binary.LittleEndian.AppendUint64(nil, d.hash)
	p = binary.LittleEndian.AppendUint64(p, d.count)
	p = binary.LittleEndian.AppendUint16(p, d.next)
	p = binary.LittleEndian.AppendUint16(p, d.pages)
	if d.next++; d.next == d.pages {
		p = append(p, d.tails...)
	}
	return p, nil
}

// Close implements logs.Dump.
func (*dump) Close() {}

const pageSize = 20 // without tails

// stage is a content being built from pages.
type stage struct {
	s      *store
	source string
	first  []byte
	tails  *tails
	next   uint16
	pages  uint16
	over   bool
}

// Stage implements logs.LogStore.
func (s *store) Stage(source string, _ uint64) (logs.Stage, error) {
	s.m.w.Stats.Stages++
	s.staged++
	s.stages++
	s.last = &stage{s: s, source: source}
	return s.last, nil
}

// Page implements logs.Stage.
func (g *stage) Page(p []byte) error {
	if len(p) < pageSize {
		return fmt.Errorf("sim: page of %d bytes", len(p))
	}
	i, n := binary.LittleEndian.Uint16(p[16:]), binary.LittleEndian.Uint16(p[18:])
	if g.first == nil {
		g.first, g.pages = p, n
	}
	if g.over || string(p[:16]) != string(g.first[:16]) || i != g.next || n != g.pages {
		g.s.m.w.failf("%s: pages of different snapshots of %s reached the store, or not in order", g.s.m.name, g.source)
		return errors.New("sim: mixed pages")
	}
	if g.next++; g.next == n && g.s.version >= shortSince {
		g.tails = readTails(p[pageSize:])
	}
	return nil
}

// Commit implements logs.Stage.
func (g *stage) Commit() error {
	g.end()
	g.s.m.touch(g.source)
	if g.next != g.pages {
		g.s.m.w.failf("%s: %s was taken over from %d pages of %d", g.s.m.name, g.source, g.next, g.pages)
	}
	delete(g.s.tails, g.source)
	if g.tails != nil {
		g.s.tails[g.source] = g.tails
	}
	if g.first == nil {
		delete(g.s.content, g.source)
		return nil
	}
	g.s.content[g.source] = chain{hash: binary.LittleEndian.Uint64(g.first), count: binary.LittleEndian.Uint64(g.first[8:])}
	return nil
}

// Discard implements logs.Stage.
func (g *stage) Discard() {
	g.s.m.w.Stats.Discarded++
	g.end()
}

func (g *stage) end() {
	if g.over {
		g.s.m.w.failf("%s: a stage of %s ended twice", g.s.m.name, g.source)
	}
	g.over = true
	g.s.staged--
}

// Forget implements logs.LogStore.
func (s *store) Forget(source string) {
	delete(s.content, source)
	delete(s.tails, source)
	delete(s.m.last, source)
}

// Assign implements logs.LogStore.
func (s *store) Assign(source string, role logs.Role) { s.m.assign(source, role) }

// gauges is a member's GaugeSink: its view of other members.
type gauges struct{ of map[string]map[string]uint64 }

// Merge implements core.GaugeSink.
func (g *gauges) Merge(origin string, _ uint64, key string, value []byte) error {
	t := g.of[origin]
	if t == nil {
		t = map[string]uint64{}
		g.of[origin] = t
	}
	if value == nil {
		delete(t, key)
		return nil
	}
	t[key] = binary.LittleEndian.Uint64(value)
	return nil
}

// Drop implements core.GaugeSink.
func (g *gauges) Drop(origin string) { delete(g.of, origin) }

// hints is a member's FeedSink. Payloads count up per origin process.
type hints struct {
	m    *member
	last map[uint64]uint64
}

// Deliver implements core.FeedSink.
func (h *hints) Deliver(origin string, _ uint64, payload []byte) error {
	boot, n := binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])
	if n <= h.last[boot] {
		h.m.w.failf("%s: hint %d of %s came again, or late", h.m.name, n, origin)
	}
	h.last[boot] = n
	h.m.w.Stats.Hints++
	return nil
}
