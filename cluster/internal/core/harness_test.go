package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// memStore is a LogStore whose content is the list of applied payloads.
type memStore struct {
	of      map[string][]byte
	roles   map[string]logs.Role
	refuse  bool // reject every payload from now on
	corrupt bool // corrupt restored content
	large   bool // too large for a snapshot
	asked   int  // snapshots requested
	staged  int  // stages being built
}

func newMemStore() *memStore {
	return &memStore{of: map[string][]byte{}, roles: map[string]logs.Role{}}
}

func (s *memStore) Apply(d logs.Delta) error {
	if s.refuse {
		return errors.New("refused")
	}
	s.of[d.Source] = append(s.of[d.Source], d.Payload...)
	return nil
}

func (s *memStore) Reset(source string, _ uint64) { delete(s.of, source) }

func (s *memStore) Digest(source string) logs.Digest {
	return logs.Digest{Count: uint64(len(s.of[source])), Xor: group.Hash(string(s.of[source]))}
}

func (s *memStore) Snapshot(source string, size int) (logs.Dump, error) {
	s.asked++
	if s.large {
		return nil, fmt.Errorf("store: %w", logs.ErrTooLarge)
	}
	d := &memDump{s: s}
	for p := range slices.Chunk(s.of[source], size) {
		d.pages = append(d.pages, slices.Clone(p))
	}
	return d, nil
}

func (s *memStore) Stage(source string, _ uint64) (logs.Stage, error) {
	s.staged++
	return &memStage{s: s, source: source}, nil
}

// memDump is the remaining pages of a snapshot.
type memDump struct {
	s     *memStore
	pages [][]byte
}

func (d *memDump) Next() (p []byte, err error) {
	if len(d.pages) > 0 {
		p, d.pages = d.pages[0], d.pages[1:]
	}
	return p, nil
}

func (d *memDump) Close() {}

// memStage holds payloads that a memStore may commit.
type memStage struct {
	s      *memStore
	source string
	of     []byte
}

func (g *memStage) Page(p []byte) error {
	g.of = append(g.of, p...)
	return nil
}

func (g *memStage) Commit() error {
	if g.s.corrupt {
		g.of = append(g.of, '!')
	}
	g.s.of[g.source] = g.of
	g.s.staged--
	return nil
}

func (g *memStage) Discard() { g.s.staged-- }

func (s *memStore) Forget(source string)                 { delete(s.of, source) }
func (s *memStore) Assign(source string, role logs.Role) { s.roles[source] = role }

// memGauge is a GaugeSink and a FeedSink.
type memGauge struct {
	of    map[string]map[string]string
	hints []string
}

func newMemGauge() *memGauge { return &memGauge{of: map[string]map[string]string{}} }

func (g *memGauge) Merge(origin string, _ uint64, key string, value []byte) error {
	if g.of[origin] == nil {
		g.of[origin] = map[string]string{}
	}
	if value == nil {
		delete(g.of[origin], key)
	} else {
		g.of[origin][key] = string(value)
	}
	return nil
}

func (g *memGauge) Drop(origin string) { delete(g.of, origin) }

func (g *memGauge) Deliver(origin string, _ uint64, payload []byte) error {
	g.hints = append(g.hints, origin+":"+string(payload))
	return nil
}

// one is a core with one state of each kind.
type one struct {
	*Core
	id    string
	store *memStore
	slow  bool        // its jobs do not end
	jobs  []group.Job // jobs that have not ended
	sink  *memGauge
	gauge *Gauge
	feed  *Feed
	pages *Direct
	log   *logs.Log
	looks int // number of times a source of the log was looked up
}

// table holds cores whose frames are delivered immediately and in order, except for those that the
// test intercepts.
type table struct {
	t     testing.TB
	now   time.Duration
	cores []*one
	// hold, if set, returns true to intercept a frame.
	hold func(from, to string, frame []byte) bool
}

func newTable(t testing.TB, opt group.Options, ids ...string) *table {
	tb := &table{t: t, now: time.Second}
	var members []group.Member
	for i, id := range ids {
		m := group.Member{ID: id, Boot: uint64(i + 1)}
		members = append(members, m)
		o := opt
		o.Self = m
		tb.cores = append(tb.cores, newOne(o))
	}
	for _, c := range tb.cores {
		c.Advance(tb.now)
		c.SetMembers(members)
		for _, m := range members {
			c.SetLink(m.ID, true)
		}
		c.log.SetSources([]string{"s1", "s2"})
	}
	tb.run(50 * time.Millisecond)
	return tb
}

func newOne(o group.Options) *one {
	c := &one{Core: New(o), id: o.Self.ID, store: newMemStore(), sink: newMemGauge()}
	c.gauge = c.NewGauge("load", 1, c.sink)
	c.feed = c.NewFeed("hints", 1, c.sink)
	c.pages = c.NewDirect("pages", 1, c.sink)
	guard := func() (lock, unlock func()) { return func() { c.looks++ }, func() {} }
	c.log = c.NewLog("index", 1, c.store, logs.LogOptions{Owned: true, Guard: guard})
	return c
}

func (tb *table) get(id string) *one {
	for _, c := range tb.cores {
		if c.id == id {
			return c
		}
	}
	tb.t.Fatalf("no core %s", id)
	return nil
}

// run advances the time in steps of a millisecond.
func (tb *table) run(d time.Duration) {
	for end := tb.now + d; tb.now < end; {
		tb.now += time.Millisecond
		for _, c := range tb.cores {
			c.Advance(tb.now)
			c.Tick()
		}
		tb.pump()
	}
}

// work runs the jobs of a core. Jobs of a slow core do not end.
func (c *one) work() {
	for _, j := range c.Jobs() {
		if j.Begin != nil {
			j.Begin()
		}
		j.Run(func() bool { return false })
		c.jobs = append(c.jobs, j)
	}
	for len(c.jobs) > 0 && !c.slow {
		j := c.jobs[0]
		c.jobs = c.jobs[1:]
		j.End()
	}
}

// pump delivers frames until there are none left.
func (tb *table) pump() {
	for busy := true; busy; {
		busy = false
		for _, c := range tb.cores {
			c.work()
			for _, e := range slices.Clone(c.Drain()) {
				busy = true
				tb.deliver(c.id, e)
			}
		}
	}
}

func (tb *table) deliver(from string, e group.Envelope) {
	for _, c := range tb.cores {
		if c.id == from || (e.To != nil && !slices.Contains(e.To, c.id)) {
			continue
		}
		if tb.hold == nil || !tb.hold(from, c.id, e.Frame) {
			c.Receive(from, slices.Clone(e.Frame))
		}
	}
}

func delta(source string, inc, seq uint64) logs.Delta {
	return logs.Delta{Source: source, Inc: inc, First: seq, Last: seq, Payload: text(inc, seq)}
}

func text(inc, seq uint64) []byte { return fmt.Appendf(nil, "[%d.%d]", inc, seq) }

// content is the expected content after deltas seq 0 to next of an incarnation.
func content(inc, next uint64) string {
	var b []byte
	for seq := range next {
		b = append(b, text(inc, seq)...)
	}
	return string(b)
}

func (c *one) expect(t testing.TB, source string, pos logs.Position, want string) {
	t.Helper()
	if got := c.log.Position(source); got != pos {
		t.Errorf("%s: position of %s is %+v, want %+v", c.id, source, got, pos)
	}
	if got := string(c.store.of[source]); got != want {
		t.Errorf("%s: content of %s is %q, want %q", c.id, source, got, want)
	}
}

// frameOf builds a frame with any boot.
func frameOf(kind byte, boot uint64, body []byte) []byte {
	return append(group.Header(nil, kind, boot), body...)
}

func deltaFrame(boot uint64, source string, inc uint64, seqs ...uint64) []byte {
	g := group.DeltaRun{Source: []byte(source), Inc: inc}
	for _, s := range seqs {
		g.Entries = append(g.Entries, group.Entry{First: s, Last: s, Payload: text(inc, s)})
	}
	return frameOf(group.KindDelta, boot, g.Append(group.DeltasHead(nil, "index", 1, 1)))
}
