package simtest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/grapevine-epp/grapevine/cluster/core"
)

// chain is the content of a store for one source: the hash of everything
// applied, in order.
type chain struct{ count, hash uint64 }

func (c chain) apply(v uint64) chain {
	x := c.hash ^ v ^ 0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return chain{c.count + 1, x ^ x>>31}
}

var errInjected = errors.New("simtest: injected")

// store is a member's LogStore.
type store struct {
	m       *member
	content map[string]chain
	fail    float64 // share of remote deltas that cannot be applied
	applied int
}

// Apply implements core.LogStore.
func (s *store) Apply(d core.Delta) error {
	if len(d.Payload) < 8 {
		return fmt.Errorf("simtest: payload of %d bytes", len(d.Payload))
	}
	s.m.touch(d.Source)
	if s.fail > 0 && !d.Local && s.m.w.rng.Float64() < s.fail {
		s.m.w.Stats.Injected++
		return errInjected
	}
	s.applied++
	s.content[d.Source] = s.content[d.Source].apply(binary.LittleEndian.Uint64(d.Payload))
	return nil
}

// Reset implements core.LogStore.
func (s *store) Reset(source string, _ uint64) {
	s.m.touch(source)
	delete(s.content, source)
}

// Digest implements core.LogStore.
func (s *store) Digest(source string) core.Digest {
	c := s.content[source]
	return core.Digest{Count: c.count, Xor: c.hash}
}

// Snapshot spreads a content over some pages, each of which says which of how
// many it is, so that Restore notices a mixture.
func (s *store) Snapshot(source string, _ int) ([][]byte, error) {
	c := s.content[source]
	if c.count == 0 {
		return nil, nil
	}
	n := 1 + c.count%7
	pages := make([][]byte, n)
	for i := range pages {
		p := binary.LittleEndian.AppendUint64(nil, c.hash)
		p = binary.LittleEndian.AppendUint64(p, c.count)
		pages[i] = append(p, byte(i), byte(n))
	}
	return pages, nil
}

// Restore implements core.LogStore.
func (s *store) Restore(source string, pages [][]byte) error {
	s.m.touch(source)
	if len(pages) == 0 {
		delete(s.content, source)
		return nil
	}
	for i, p := range pages {
		if len(p) != 18 || string(p[:16]) != string(pages[0][:16]) || int(p[16]) != i || int(p[17]) != len(pages) {
			s.m.w.failf("%s: pages of different snapshots of %s reached the store", s.m.name, source)
			return errors.New("simtest: mixed pages")
		}
	}
	s.content[source] = chain{
		hash: binary.LittleEndian.Uint64(pages[0]), count: binary.LittleEndian.Uint64(pages[0][8:]),
	}
	return nil
}

// Forget implements core.LogStore.
func (s *store) Forget(source string) { delete(s.content, source) }

// Assign implements core.LogStore.
func (s *store) Assign(source string, role core.Role) { s.m.assign(source, role) }

// gauges is a member's GaugeSink: what it believes of others.
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
