package core

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// ErrGaugeFull is returned when a gauge's keys and values would exceed Options.GaugeBytes.
var ErrGaugeFull = errors.New("cluster: gauge is full")

// Gauge is a state of absolute values. Each member writes its own.
type Gauge struct {
	c       *Core
	id, idx int
	name    string
	version uint64
	sink    GaugeSink

	own     map[string][]byte
	bytes   int
	ver     uint64 // of own, as last sent
	dirty   []string
	isDirty map[string]bool
	flushAt time.Duration
}

// gaugeTable is the known content of a peer's gauge.
type gaugeTable struct {
	ver      uint64
	want     uint64 // ver in the last heartbeat
	complete bool
	keys     map[string]int // size of the entry
	bytes    int
	asked    time.Duration
}

// NewGauge registers a gauge. Sizes are bounded by Options.GaugeBytes.
func (c *Core) NewGauge(name string, version uint64, sink GaugeSink) *Gauge {
	g := &Gauge{
		c: c, idx: c.g.Register(name), id: len(c.gauges), name: name, version: version, sink: sink,
		own: map[string][]byte{}, isDirty: map[string]bool{}, flushAt: group.Never,
	}
	c.gauges = append(c.gauges, g)
	return g
}

// Set changes this member's value of key; nil removes the key. The change is sent within
// Options.GaugeDelay, or Options.Pace after the last update. value belongs to the gauge afterwards.
func (g *Gauge) Set(key string, value []byte) error {
	old, had := g.own[key]
	if had == (value != nil) && bytes.Equal(old, value) {
		return nil
	}
	size := g.bytes
	if had {
		size -= entrySize(key, old)
	}
	if value != nil {
		size += entrySize(key, value)
	}
	if size > g.c.g.Opt.GaugeBytes || len(key) > group.MaxName {
		return ErrGaugeFull
	}
	g.bytes = size
	if value == nil {
		delete(g.own, key)
	} else {
		g.own[key] = value
	}
	g.mark(key)
	return nil
}

// Renew is Set, but sends the value even if it has not changed. Peers can thus see that it still
// holds.
func (g *Gauge) Renew(key string, value []byte) error {
	if err := g.Set(key, value); err != nil {
		return err
	}
	if value != nil {
		g.mark(key)
	}
	return nil
}

// GaugeAbsent reports whether no reachable member has this member's gauge of that name, by their own
// heartbeats: all run releases without it. It is false while a reachable member has not listed its
// states, and without reachable members.
func (c *Core) GaugeAbsent(name string) bool {
	g, up := c.gauge([]byte(name)), false
	if g == nil {
		return false
	}
	for _, p := range c.peers {
		switch {
		case !p.Up:
		case p.lists == nil || p.lists[g.id]:
			return false
		default:
			up = true
		}
	}
	return up
}

// mark queues key for the next update.
func (g *Gauge) mark(key string) {
	if !g.isDirty[key] {
		g.isDirty[key] = true
		g.dirty = append(g.dirty, key)
	}
	if g.flushAt == group.Never {
		g.flushAt = g.c.paced(g.c.g.Opt.GaugeDelay)
	}
}

// entrySize is the most bytes that an entry can take in a frame.
func entrySize(key string, value []byte) int { return len(key) + len(value) + 8 }

// flush sends the changes, if there are any.
func (g *Gauge) flush() {
	if g.flushAt == group.Never {
		return
	}
	g.flushAt = group.Never
	var entries []group.GaugeEntry
	size := 0
	for _, k := range g.dirty {
		v, ok := g.own[k]
		add := entrySize(k, v)
		if size > 0 && size+add > group.MaxFrame/2 {
			g.publish(entries)
			entries, size = entries[:0], 0
		}
		size += add
		entries = append(entries, group.GaugeEntry{Key: []byte(k), Value: v, Removed: !ok})
	}
	g.publish(entries)
	g.dirty = g.dirty[:0]
	clear(g.isDirty)
}

// publish broadcasts an update.
func (g *Gauge) publish(entries []group.GaugeEntry) {
	m := group.Gauge{Name: []byte(g.name), Version: g.version, From: g.ver, Ver: g.ver + 1, Entries: entries}
	g.ver++
	g.c.g.Broadcast(group.Live, g.idx, m.Append(g.c.g.Frame(group.KindGauge)))
}

// sendAll answers a GaugeAsk. Unsent changes stay queued for the next update. So the content has
// version g.ver, or is newer for keys that the next update will contain.
func (g *Gauge) sendAll(p *peer) {
	m := group.Gauge{Name: []byte(g.name), Version: g.version, Full: true, Ver: g.ver}
	keys := make([]string, 0, len(g.own))
	for k := range g.own {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		m.Entries = append(m.Entries, group.GaugeEntry{Key: []byte(k), Value: g.own[k]})
	}
	g.c.g.Send(p.Peer, group.Live, g.idx, m.Append(g.c.g.Frame(group.KindGauge)))
}

// compare requests p's full gauge when p is at ver and the known content is not.
func (g *Gauge) compare(p *peer, ver uint64) {
	t := &p.gauges[g.id]
	t.want = ver
	if t.ver == ver && (t.complete || ver == 0) {
		return
	}
	g.ask(p)
}

func (g *Gauge) ask(p *peer) {
	t := &p.gauges[g.id]
	if !p.Link || (t.asked > 0 && g.c.g.Now-t.asked < g.c.g.Opt.Heartbeat/2) {
		return
	}
	t.asked = max(g.c.g.Now, 1)
	m := group.GaugeAsk{Name: []byte(g.name)}
	g.c.g.Send(p.Peer, group.Live, g.idx, m.Append(g.c.g.Frame(group.KindGaugeAsk)))
}

func (c *Core) gauge(name []byte) *Gauge {
	for _, g := range c.gauges {
		if g.name == string(name) {
			return g
		}
	}
	return nil
}

func (c *Core) onGaugeAsk(p *peer, r group.Reader) (int, error) {
	if err := c.in.ask.Decode(r); err != nil {
		return 0, err
	}
	g := c.gauge(c.in.ask.Name)
	if g == nil {
		return c.g.UnknownState(), nil
	}
	g.sendAll(p)
	return g.idx, nil
}

func (c *Core) onGauge(p *peer, r group.Reader) (int, error) {
	m := &c.in.gauge
	if err := m.Decode(r); err != nil {
		return 0, err
	}
	g := c.gauge(m.Name)
	if g == nil {
		return c.g.UnknownState(), nil
	}
	g.merge(p, m)
	return g.idx, nil
}

// merge applies an update or a full list from p. Entries of a version above the known one are
// newer, even if updates in between were lost. In that case the full list is requested.
func (g *Gauge) merge(p *peer, m *group.Gauge) {
	t := &p.gauges[g.id]
	if m.Ver < t.ver || (m.Ver == t.ver && (t.complete || !m.Full)) {
		g.c.g.Stats.GaugesOld++
		return
	}
	if t.keys == nil {
		t.keys = map[string]int{}
	}
	if m.Full {
		g.dropOthers(p, t, m.Entries)
	}
	contiguous := m.From == t.ver && (t.complete || t.ver == 0)
	for _, e := range m.Entries {
		g.set(p, t, m.Version, e)
	}
	t.ver, t.complete = m.Ver, m.Full || contiguous
	if !t.complete {
		g.ask(p)
	}
}

func (g *Gauge) set(p *peer, t *gaugeTable, version uint64, e group.GaugeEntry) {
	key := string(e.Key)
	t.bytes -= t.keys[key]
	delete(t.keys, key)
	value := e.Value
	if e.Removed {
		value = nil
	} else {
		size := entrySize(key, value)
		if t.bytes+size > g.c.g.Opt.GaugeBytes {
			g.c.g.Refuse(group.RefusedOversized)
			return
		}
		t.bytes += size
		t.keys[key] = size
	}
	if err := g.sink.Merge(p.ID, version, key, value); err != nil {
		g.c.g.Refuse(group.RefusedPayload)
	}
}

// dropOthers removes the keys that are not in a full list.
func (g *Gauge) dropOthers(p *peer, t *gaugeTable, entries []group.GaugeEntry) {
	if len(t.keys) == 0 {
		return
	}
	named := make(map[string]bool, len(entries))
	for _, e := range entries {
		named[string(e.Key)] = true
	}
	var gone []string
	for k := range t.keys {
		if !named[k] {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	for _, k := range gone {
		g.set(p, t, 0, group.GaugeEntry{Key: []byte(k), Removed: true})
	}
}
