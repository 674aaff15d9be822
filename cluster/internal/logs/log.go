package logs

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// MaxPayload bounds the payload of a delta that is sent as such. A larger one
// is applied and reaches peers by snapshot.
const MaxPayload = group.MaxFrame / 2

// LogOptions configure a Log.
type LogOptions struct {
	// Owned says that streams outside of the group feed the sources, and that
	// members divide them: Assign is called, and only the first reader of a
	// source publishes. Otherwise whoever appends publishes.
	Owned bool
	// Needs returns the version of the log that a member must state to read a
	// payload. Whoever states less is not sent it and gets a snapshot instead, which
	// every version must be able to read. Nil: everybody reads everything.
	Needs func(payload []byte) uint64
	// Guard makes the lock of one source, so that its deltas are merged while those of
	// others are, and while anything else goes on; nil when one goroutine does everything.
	// See the package comment.
	Guard func() (lock, unlock func())
}

// Log is a state made of sources, each a log with one writer, of which every
// member knows a position.
type Log struct {
	g       *group.Group
	idx     int // of the state
	name    string
	version uint64
	store   LogStore
	opt     LogOptions

	table atomic.Pointer[table]  // for whoever merges deltas
	fresh atomic.Pointer[source] // sources with something to do, linked by nextFresh

	zones   map[string]string // of sources, by name; as SetZones was told
	sources map[string]*source
	order   []*source // by name
	slots   []*source // by slot; nil where free
	taken   int       // no slot below is free
	peers   []peerLog // by slot of the peer
	mesh    bool

	pushing     []*source
	telling     []*source // to be claimed
	flushAt     time.Duration
	nextDigest  time.Duration // when to claim what there is to be told; Never when nothing
	lastDigest  time.Duration
	nextAudit   time.Duration
	nextTips    time.Duration
	sentAll     uint64 // number of the last frame for everybody
	maxOne      uint64 // the largest number of a frame for one peer; a row of a new peer goes on from there
	stamp       uint64 // of the last claims
	checks      []*source
	nextCheck   time.Duration
	askedAround time.Duration
	loads       map[uint64]*source // by the ID of the outstanding ask
	loading     int
	draining    bool // deltas that were kept aside are still to be applied
	snaps       []*snap
	snapBytes   int
	making      *snap     // being made
	named       bool      // SetSources was called
	undivided   bool      // members or sources changed since divide
	regrouped   uint64    // how often what words of all sources follow from changed
	moved       []*source // what their roles follow from changed since they were looked at
	looked      []*source // at the last look; its memory is used again
	orphans     []*source // whose roles follow from time too
	zoned       bool      // as of divide: all members that can own sources say where they are
	nextRoles   time.Duration
}

// source is what this member knows of one source.
type source struct {
	name string
	zone string // "" when nobody says
	hash uint64
	slot int

	lock, unlock func()
	nextFresh    *source

	content // guarded by lock

	noticed uint64 // moves, as of the last look

	compared  Position // where compare was told last, without Lost; zero: anew
	furthest  uint64   // position of which a peer claimed the content
	differing int      // peers of whose content there ours differs
	word      word
	pushing   bool // among those of the log that have deltas to push

	owner     *group.Peer // nil: this member
	role      Role
	reading   bool          // the application reads the stream
	moving    bool          // among those of the log whose role is looked at next
	waits     bool          // among those whose role follows from time too
	orphan    time.Duration // since when nobody reachable reads it; 0 when somebody does
	tell      bool          // to be claimed
	told      Position      // last claimed to everybody
	toldAt    time.Duration
	begunAt   time.Duration // when its incarnation was claimed first
	announced bool          // the Reading bit last claimed
	published bool          // at the last flush
	tip       bool          // moved since readers were told
	sentAll   uint64        // number of the last frame for everybody that named it

	inCheck bool
	behind  time.Duration // since when a peer is known to be ahead and nothing came; 0 when none is
	ahead   time.Duration // when something came last before that began, whatever came since; 0 when none is
	differs uint          // snapshots loaded in a row because digests differed
	healAt  time.Duration // not loaded for that reason before
	load    *load

	denied   uint   // snapshots in a row that nobody could hand out
	tooLarge uint64 // bytes of the last that was over the limit

	snapFails uint          // snapshots in a row that could not be made
	snapSize  int           // of the last one, as far as it came, if it was too large
	snapAfter time.Duration // none is made before
}

// table finds sources. It is never changed.
type table struct {
	byName map[string]*source
	byNick map[uint32]*source // nil where two sources have the same
}

// New registers a log.
func (set *Set) New(name string, version uint64, store LogStore, opt LogOptions) *Log {
	l := &Log{
		g: set.g, idx: set.g.Register(name), name: name, version: version, store: store, opt: opt,
		sources: map[string]*source{}, loads: map[uint64]*source{},
		flushAt: group.Never, nextCheck: group.Never, nextDigest: group.Never, nextAudit: group.Never, nextTips: group.Never,
		undivided: true, regrouped: 1,
	}
	if l.opt.Guard == nil {
		none := func() {}
		l.opt.Guard = func() (lock, unlock func()) { return none, none }
	}
	l.table.Store(&table{})
	set.List = append(set.List, l)
	return l
}

// maxClaim is the most that a claim takes beyond the source's name.
const maxClaim = 60

// SetSources replaces the set of sources that are shared. What is known of
// others is forgotten; peers' word on them is ignored. It returns how many are
// left out: names longer than group.MaxName, empty ones, and those beyond what fits
// a digest (some ten thousand).
func (l *Log) SetSources(names []string) (left int) {
	first := !l.named
	l.named = true
	want := make(map[string]bool, len(names))
	size := 0
	for _, n := range names {
		if want[n] {
			continue
		}
		if n == "" || len(n) > group.MaxName || size+len(n)+maxClaim > group.MaxFrame-1024 {
			left++
			continue
		}
		size += len(n) + maxClaim
		want[n] = true
	}
	l.forget(want)
	for _, n := range names {
		if want[n] && l.sources[n] == nil {
			l.learn(n)
		}
	}
	slices.SortFunc(l.order, func(a, b *source) int { return strings.Compare(a.name, b.name) })
	l.nameSources()
	l.setMesh(first)
	l.redivide()
	return left
}

func (l *Log) learn(name string) {
	s := &source{name: name, zone: l.zones[name], hash: group.Hash(name), slot: l.freeSlot()}
	s.lock, s.unlock = l.opt.Guard()
	l.slots[s.slot] = s
	l.sources[name] = s
	l.order = append(l.order, s)
	for _, p := range l.g.Peers {
		pl := l.of(p)
		for len(pl.claims) < len(l.slots) {
			pl.claims = append(pl.claims, heldClaim{})
		}
		pl.claims[s.slot] = heldClaim{}
		if s.slot < len(pl.named) {
			pl.named[s.slot] = 0
		}
		pl.full = false // what it claimed of the new source was ignored
		if l.g.Phase != group.Settled {
			pl.target = nil
		}
	}
}

// freeSlot returns the least slot that no source has.
func (l *Log) freeSlot() int {
	for l.taken < len(l.slots) && l.slots[l.taken] != nil {
		l.taken++
	}
	if l.taken == len(l.slots) {
		l.slots = append(l.slots, nil)
	}
	return l.taken
}

// forget forgets the sources that are not wanted. All of a pool may be gone at once: lists are
// gone through once, not for each.
func (l *Log) forget(want map[string]bool) {
	for _, s := range l.order {
		if want[s.name] {
			continue
		}
		l.enter(s)
		l.endLoad(s)
		l.dropSnaps(s)
		s.gone = true
		s.tally.AddTo(&l.g.Stats)
		l.leave(s)
		s.inCheck = false
		for _, p := range l.g.Peers {
			l.of(p).unclaim(s)
		}
		l.slots[s.slot] = nil
		l.taken = min(l.taken, s.slot)
		delete(l.sources, s.name)
		if l.opt.Owned && s.role != RoleNone {
			l.store.Assign(s.name, RoleNone)
		}
		l.store.Forget(s.name)
	}
	unwanted := func(s *source) bool { return !want[s.name] }
	l.checks = slices.DeleteFunc(l.checks, unwanted)
	l.pushing = slices.DeleteFunc(l.pushing, unwanted)
	l.telling = slices.DeleteFunc(l.telling, unwanted)
	l.order = slices.DeleteFunc(l.order, unwanted)
}

// Position returns how far source is known. Whoever merges deltas may call it.
func (l *Log) Position(source string) Position {
	s := l.table.Load().byName[source]
	if s == nil {
		return Position{}
	}
	s.lock()
	defer s.unlock()
	return s.pos
}

// Reading says whether the application's own reader is connected to the
// stream of source. Others rely on it when they stop reading themselves.
func (l *Log) Reading(source string, reading bool) {
	if s := l.sources[source]; s != nil && s.reading != reading {
		l.enter(s)
		s.reading, s.word = reading, word{}
		l.reassign(s)
		l.leave(s)
		if s.tell {
			l.nextDigest = l.g.Now
		}
	}
}

// Append hands in a delta read from a source's stream. d.Payload belongs to
// the log afterwards. On Gap the delta is kept if there is room; the caller
// asks its source for what follows Position, or calls Lose. A delta that
// overlaps the position in part counts as Gap and is not kept.
func (l *Log) Append(d Delta) Verdict {
	v, _, ok := l.AppendNext(l.g.Now, d)
	if ok {
		return v
	}
	s := l.sources[d.Source]
	if s == nil {
		return Unknown
	}
	l.enter(s)
	defer l.leave(s)
	d.Local = true
	v = l.take(s, d)
	s.tally.Appended[v]++
	return v
}

// AppendNext is Append for what needs nothing but the source's lock, which is all but
// the first delta of an incarnation: !ok says that d is one, and nothing was done. It may
// be called while other methods run. due is when Tick has something to do because of it.
func (l *Log) AppendNext(now time.Duration, d Delta) (v Verdict, due time.Duration, ok bool) {
	s := l.table.Load().byName[d.Source]
	if s == nil || d.Inc == 0 || d.Last < d.First || d.Last == ^uint64(0) {
		return Unknown, group.Never, true
	}
	s.lock()
	defer s.unlock()
	if s.gone {
		return Unknown, group.Never, true
	}
	if d.Inc > s.pos.Inc {
		return 0, 0, false
	}
	d.Local = true
	v = l.ingest(now, s, d)
	s.tally.Appended[v]++
	return v, l.remind(now, s), true
}

// Lose says that the sequence numbers before next cannot be had from the
// source's stream. Knowledge goes on from there as inexact, until a peer that
// has them is found.
func (l *Log) Lose(source string, inc, next uint64) Verdict {
	s := l.sources[source]
	if s == nil || inc == 0 || next == ^uint64(0) {
		return Unknown
	}
	l.enter(s)
	defer l.leave(s)
	switch {
	case inc < s.pos.Inc:
		return Stale
	case inc > s.pos.Inc:
		l.adopt(s, inc)
	}
	if next <= s.pos.Next {
		return Already
	}
	l.g.Stats.Lost += next - s.pos.Next
	s.pos.Lost += next - s.pos.Next
	s.pos.Next = next
	s.ring.clear()
	l.touch(l.g.Now, s)
	l.drainPending(l.g.Now, s)
	return Applied
}

// Tick does what is due.
func (l *Log) Tick() {
	l.collect()
	now := l.g.Now
	if l.rolesDirty() || now >= l.nextRoles {
		l.assignRoles()
	}
	if now >= l.flushAt {
		l.flush()
	}
	if now >= l.nextAudit {
		l.audit()
	}
	if now >= l.nextDigest {
		l.sendDigests()
	}
	if now >= l.nextTips {
		l.sendTips()
	}
	l.sendFullDigests()
	l.askMissed()
	if now >= l.nextCheck {
		l.runChecks()
	}
	l.tendSnaps()
}

// Deadline returns when Tick is due next.
func (l *Log) Deadline() time.Duration {
	l.collect()
	if l.rolesDirty() {
		return l.g.Now
	}
	return min(l.flushAt, l.nextDigest, l.nextAudit, l.nextTips, l.nextCheck, l.nextRoles, l.nextFull(), l.nextMissed(), l.nextSnap())
}
