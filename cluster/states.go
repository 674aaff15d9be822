package cluster

import (
	"sync"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// Gauge is a state of absolute values that each member writes for itself. It
// vanishes with its origin: at most a second after that died.
type Gauge struct {
	n *Node
	g *core.Gauge
}

// Gauge registers a gauge before Open. name and version identify its encoding
// to other members; sink is told of their values.
func (n *Node) Gauge(name string, version uint64, sink GaugeSink) *Gauge {
	return &Gauge{n, n.core.NewGauge(name, version, sink)}
}

// Set changes this member's value of key; nil removes it. Changes are sent
// together, within 10 ms. value belongs to the gauge afterwards. The only
// error is core.ErrGaugeFull.
func (g *Gauge) Set(key string, value []byte) (err error) {
	g.n.do(func() { err = g.g.Set(key, value) })
	return err
}

// Renew is Set for a value that the others are told again where it has not changed, so that
// their sinks hear that it still holds.
func (g *Gauge) Renew(key string, value []byte) (err error) {
	g.n.do(func() { err = g.g.Renew(key, value) })
	return err
}

// Feed is a state of hints, delivered at most once and not repaired.
type Feed struct {
	n *Node
	f *core.Feed
}

// Feed registers a feed before Open.
func (n *Node) Feed(name string, version uint64, sink FeedSink) *Feed {
	return &Feed{n, n.core.NewFeed(name, version, sink)}
}

// Send tells the others; false when it was dropped because too much waits.
// payload belongs to the feed afterwards.
func (f *Feed) Send(payload []byte) (ok bool) {
	f.n.do(func() { ok = f.f.Send(payload) })
	return ok
}

// Log is a state made of sources, each a log with one writer.
type Log struct {
	n *Node
	l *logs.Log
}

// Log registers a log before Open. SetSources must be called, also with no
// sources, before the replica can settle.
func (n *Node) Log(name string, version uint64, store LogStore, opt LogOptions) *Log {
	opt.Guard = func() (lock, unlock func()) {
		mu := new(sync.Mutex)
		return mu.Lock, mu.Unlock
	}
	return &Log{n, n.core.NewLog(name, version, store, opt)}
}

// SetSources replaces the set of sources that are shared; what is known of
// others is forgotten. It returns how many are left out because their names
// are empty, too long or too many; see logs.Log.SetSources.
func (l *Log) SetSources(names []string) (left int) {
	l.n.do(func() { left = l.l.SetSources(names) })
	return left
}

// SetZones says in which zones sources are, by name. It keeps zones. Where all members
// say theirs, those of a source's zone own it before others do; see logs.Log.SetZones.
func (l *Log) SetZones(zones map[string]string) {
	l.n.do(func() { l.l.SetZones(zones) })
}

// Position returns how far source is known. It waits for nothing but a write of source.
func (l *Log) Position(source string) Position { return l.l.Position(source) }

// Common returns the smallest version of the log that a member of the group
// states. What is appended should be readable by it; see logs.LogOptions.
func (l *Log) Common() (v uint64) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	return l.l.Common()
}

// Append hands in a delta that this replica read. The store's Apply is called
// before Append returns, when the verdict is Applied. It waits for other writes of the
// same source only, but for the first of an incarnation. See logs.Log.Append.
func (l *Log) Append(d Delta) (v Verdict) {
	v, due, ok := l.l.AppendNext(l.n.opt.Now(), d)
	if ok {
		l.n.wakeAt(due)
		return v
	}
	l.n.do(func() { v = l.l.Append(d) })
	return v
}

// Lose says that what is before next cannot be had from source's stream.
func (l *Log) MarkLost(source string, inc, next uint64) (v Verdict) {
	l.n.do(func() { v = l.l.MarkLost(source, inc, next) })
	return v
}

// Reading says whether this replica's reader of source is connected.
func (l *Log) Reading(source string, reading bool) {
	l.n.do(func() { l.l.Reading(source, reading) })
}

// Source returns what is known of one source.
func (l *Log) Source(name string) (SourceView, bool) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	return l.l.Source(name)
}

// Sources appends a view of every source, by name.
func (l *Log) Sources(dst []SourceView) []SourceView {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	return l.l.Sources(dst)
}
