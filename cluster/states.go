package cluster

import (
	"sync"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// Gauge is a state of absolute values. Each member writes its own, and they are dropped at most a
// second after it dies.
type Gauge struct {
	n *Node
	g *core.Gauge
}

// Gauge registers a gauge before Open. name and version identify its encoding to other members.
// sink receives their values.
func (n *Node) Gauge(name string, version uint64, sink GaugeSink) *Gauge {
	return &Gauge{n, n.core.NewGauge(name, version, sink)}
}

// GaugeAbsent reports whether all reachable members state that they do not have this member's gauge
// of that name, because they run releases without it. It is false without reachable members.
func (n *Node) GaugeAbsent(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.core.GaugeAbsent(name)
}

// Set changes this member's value of key; nil removes the key. Changes are batched for up to 10 ms.
// value belongs to the gauge afterwards. The only error is core.ErrGaugeFull.
func (g *Gauge) Set(key string, value []byte) (err error) {
	g.n.do(func() { err = g.g.Set(key, value) })
	return err
}

// Renew is Set, but sends the value even if it has not changed, so that peers' sinks see that it
// still holds.
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

// Send queues payload for all peers. It returns false if the queue was full and payload was
// dropped. payload belongs to the feed afterwards.
func (f *Feed) Send(payload []byte) (ok bool) {
	f.n.do(func() { ok = f.f.Send(payload) })
	return ok
}

// Direct is a state of messages to single members, delivered at most once and not repaired.
type Direct struct {
	n *Node
	d *core.Direct
}

// Direct registers a state of direct messages before Open.
func (n *Node) Direct(name string, version uint64, sink DirectSink) *Direct {
	return &Direct{n, n.core.NewDirect(name, version, sink)}
}

// Send queues payload for the member with that ID. It returns false if the member is not reachable
// or payload is larger than a page (Tuning.PageBytes). payload belongs to Direct afterwards.
func (d *Direct) Send(to string, payload []byte) (ok bool) {
	d.n.do(func() { ok = d.d.Send(to, payload) })
	return ok
}

// Log is a state made of sources, each a log with one writer.
type Log struct {
	n *Node
	l *logs.Log
}

// Log registers a log before Open. The replica can only settle after SetSources was called,
// possibly without sources.
func (n *Node) Log(name string, version uint64, store LogStore, opt LogOptions) *Log {
	opt.Guard = func() (lock, unlock func()) {
		mu := new(sync.Mutex)
		return mu.Lock, mu.Unlock
	}
	return &Log{n, n.core.NewLog(name, version, store, opt)}
}

// SetSources replaces the set of shared sources and drops the state of removed ones. It returns how
// many names are left out: empty, too long or too many. See logs.Log.SetSources.
func (l *Log) SetSources(names []string) (left int) {
	l.n.do(func() { left = l.l.SetSources(names) })
	return left
}

// SetZones sets the zones of sources, by name. It keeps the map. If all members have a zone,
// members of a source's zone rank before others; see logs.Log.SetZones.
func (l *Log) SetZones(zones map[string]string) {
	l.n.do(func() { l.l.SetZones(zones) })
}

// Position returns the position of source. It waits only for a write of source.
func (l *Log) Position(source string) Position { return l.l.Position(source) }

// Common returns the lowest log version among all members, which must be able to read appended
// payloads; see logs.LogOptions.
func (l *Log) Common() (v uint64) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	return l.l.Common()
}

// Append adds a delta that this replica read. If the verdict is Applied, the store's Apply was
// called before Append returned. It waits only for writes of the same source, except for the first
// delta of an incarnation. See logs.Log.Append.
func (l *Log) Append(d Delta) (v Verdict) {
	v, due, ok := l.l.AppendNext(l.n.opt.Now(), d)
	if ok {
		l.n.wakeAt(due)
		return v
	}
	l.n.do(func() { v = l.l.Append(d) })
	return v
}

// MarkLost records that source's stream cannot provide the sequence numbers before next.
func (l *Log) MarkLost(source string, inc, next uint64) (v Verdict) {
	l.n.do(func() { v = l.l.MarkLost(source, inc, next) })
	return v
}

// Reading sets whether this replica's reader of source is connected.
func (l *Log) Reading(source string, reading bool) {
	l.n.do(func() { l.l.Reading(source, reading) })
}

// Source returns the view of one source.
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
