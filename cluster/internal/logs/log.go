package logs

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// MaxPayload bounds the payload of a delta that is sent as a delta. A larger one is applied and
// reaches peers as a snapshot.
const MaxPayload = group.MaxFrame / 2

// LogOptions configure a Log.
type LogOptions struct {
	// Owned means that streams outside of the group feed the sources and that members divide them:
	// Assign is called, and only the first reader of a source publishes. Otherwise every member
	// that appends publishes.
	Owned bool
	// Needs returns the log version that a member needs to read a payload. Members with a lower
	// version are not sent the payload. They get a snapshot instead, which every version must be
	// able to read. Nil means that every member reads everything.
	Needs func(payload []byte) uint64
	// Guard makes the lock of one source, so that deltas of different sources can be merged
	// concurrently with each other and with other methods. It is nil if one goroutine does
	// everything. See the package comment.
	Guard func() (lock, unlock func())
}

// Log is a state made of sources. Each source is a log with one writer, in which every member has a
// position.
type Log struct {
	g       *group.Group
	idx     int // of the state
	name    string
	version uint64
	store   LogStore
	opt     LogOptions

	table atomic.Pointer[table]  // for concurrent merges
	fresh atomic.Pointer[source] // sources with work, linked by nextFresh

	zones   map[string]string // of sources, by name; set by SetZones
	sources map[string]*source
	order   []*source // by name
	slots   []*source // by slot; nil where free
	taken   int       // no slot below this is free
	peers   []peerLog // by slot of the peer
	mesh    bool

	pushing     []*source
	announcing  []*source // queued claims
	flushAt     time.Duration
	nextDigest  time.Duration // when to send queued claims; Never if there are none
	lastDigest  time.Duration
	nextAudit   time.Duration
	nextTips    time.Duration
	sentAll     uint64 // number of the last broadcast frame
	maxOne      uint64 // largest number of a frame for one peer; a new peer's sequence continues from there
	stamp       uint64 // of the last claims
	checks      []*source
	nextCheck   time.Duration
	askedAround time.Duration
	loads       map[uint64]*source // by the ID of the outstanding request
	loading     int
	draining    bool // pending deltas remain to be applied
	snaps       []*snap
	snapBytes   int
	making      *snap     // snapshot being made
	named       bool      // SetSources was called
	undivided   bool      // members or sources changed since the last divide
	regrouped   uint64    // number of changes that affect the words of all sources
	moved       []*source // sources whose roles may have changed
	looked      []*source // sources checked last; the slice is reused
	orphans     []*source // sources whose roles also depend on time
	zoned       bool      // as of divide: all members that can own sources have a zone
	nextRoles   time.Duration
}

// source is this member's state of one source.
type source struct {
	name string
	zone string // "" if unknown
	hash uint64
	slot int

	lock, unlock func()
	nextFresh    *source

	content // guarded by lock

	noticed uint64 // moves, when last attended

	compared  Position // position at the last compare, without Lost; zero forces a new compare
	furthest  uint64   // position for which a peer claimed a digest
	differing int      // number of peers whose content differs from ours there
	word      word
	pushing   bool // in the log's list of sources with deltas to push

	owner       *group.Peer // nil: this member
	role        Role
	reading     bool          // the application reads the stream
	moving      bool          // in the list of sources whose role is checked next
	waits       bool          // in the list of sources whose role also depends on time
	orphan      time.Duration // since when no reachable member reads it; 0 if one does
	claimQueued bool          // a claim is queued
	lastClaim   Position      // last claimed to all peers
	lastClaimAt time.Duration
	begunAt     time.Duration // when its incarnation was first claimed
	announced   bool          // Reading bit of the last claim
	published   bool          // at the last flush
	tip         bool          // moved since readers were sent its position
	sentAll     uint64        // number of the last broadcast frame that named it

	inCheck bool
	behind  time.Duration // since when a peer is known to be ahead and nothing has arrived; 0 if none is
	ahead   time.Duration // time of the last arrival before behind began, regardless of later ones; 0 if no peer is ahead
	differs uint          // consecutive snapshots loaded because digests differed
	healAt  time.Duration // earliest time for the next such load
	load    *load

	denied   uint   // consecutive snapshots that no peer could provide
	tooLarge uint64 // size of the last snapshot that was over the limit

	snapFails uint          // consecutive snapshots that could not be made
	snapSize  int           // size of the last one as far as it was made, if it was too large
	snapAfter time.Duration // earliest time to make the next
}

// table looks up sources. It is immutable.
type table struct {
	byName map[string]*source
	byNick map[uint32]*source // nil where two sources share a nick
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

// maxClaim is the largest encoded size of a claim without the source's name.
const maxClaim = 60

// SetSources replaces the set of shared sources. The state of removed sources is dropped, and
// claims about them are ignored. It returns how many names are left out: empty names, names longer
// than group.MaxName, and those that do not fit in a digest (beyond about ten thousand).
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
		pl.full = false // its claims about the new source were ignored
		if l.g.Phase != group.Settled {
			pl.target = nil
		}
	}
}

// freeSlot returns the lowest free slot.
func (l *Log) freeSlot() int {
	for l.taken < len(l.slots) && l.slots[l.taken] != nil {
		l.taken++
	}
	if l.taken == len(l.slots) {
		l.slots = append(l.slots, nil)
	}
	return l.taken
}

// forget removes the sources that are not in want. A whole pool may be removed at once, so each
// list is filtered once, not once per source.
func (l *Log) forget(want map[string]bool) {
	for _, s := range l.order {
		if want[s.name] {
			continue
		}
		l.enter(s)
		l.endLoad(s)
		l.dropSnaps(s)
		s.gone = true
		s.counts.AddTo(&l.g.Stats)
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
	l.announcing = slices.DeleteFunc(l.announcing, unwanted)
	l.order = slices.DeleteFunc(l.order, unwanted)
}

// Position returns the position of source. Safe for concurrent use.
func (l *Log) Position(source string) Position {
	s := l.table.Load().byName[source]
	if s == nil {
		return Position{}
	}
	s.lock()
	defer s.unlock()
	return s.pos
}

// Reading sets whether the application's reader is connected to the stream of source. Peers rely on
// it when they stop reading.
func (l *Log) Reading(source string, reading bool) {
	if s := l.sources[source]; s != nil && s.reading != reading {
		l.enter(s)
		s.reading, s.word = reading, word{}
		l.reassign(s)
		l.leave(s)
		if s.claimQueued {
			l.nextDigest = l.g.Now
		}
	}
}

// Append adds a delta read from a source's stream. d.Payload belongs to the log afterwards. On Gap
// the delta is kept if there is room, and the caller fetches the deltas from Position on, or calls
// MarkLost. A delta that overlaps the position in part returns Gap and is not kept.
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
	s.counts.Appended[v]++
	return v
}

// AppendNext is Append for deltas that need only the source's lock. ok is false for the first delta
// of an incarnation, which AppendNext leaves alone. Safe for concurrent use. due is when Tick has
// work because of this delta.
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
	s.counts.Appended[v]++
	return v, l.remind(now, s), true
}

// MarkLost records that the stream of source cannot provide the sequence numbers before next. The
// position continues from next as inexact, until a peer provides the missing deltas.
func (l *Log) MarkLost(source string, inc, next uint64) Verdict {
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

// Tick runs everything that is due.
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

// Deadline returns when the next Tick is due.
func (l *Log) Deadline() time.Duration {
	l.collect()
	if l.rolesDirty() {
		return l.g.Now
	}
	return min(l.flushAt, l.nextDigest, l.nextAudit, l.nextTips, l.nextCheck, l.nextRoles, l.nextFull(), l.nextMissed(), l.nextSnap())
}
