package programs

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// Limits on state that clients can create.
const (
	maxPrograms = 1 << 12
	maxSessions = 1 << 14
)

const (
	// returnWithin is how long the context of an agent without a request in flight counts. Tools
	// usually answer within seconds. A context that is not continued by then may be evicted.
	returnWithin = int64(30 * time.Second)
	// awayWithin is the same from the dispatch of a turn by another replica, whose end is not reported.
	awayWithin = int64(2 * time.Minute)
	// keepFor is how long a program without requests keeps its age.
	keepFor = int64(10 * time.Minute)
	// reviewEvery is the minimum interval between two reviews of all programs.
	reviewEvery = int64(50 * time.Millisecond)
	// firstGuess is the share of a new agent's prompt that no engine holds, until it is learned.
	firstGuess = .5
	learnRate  = .02
)

// Turn is one request of a program.
type Turn struct {
	Program sessions.Key
	Session sessions.Key // the agent; turns of one session continue each other
	Tenant  sessions.Key
	// Previous is the stored response that it continues, 0 for none. If a turn of this Core stored
	// that response, the turn belongs to its session, and Program and Session do not count.
	Previous sessions.Key
	Tokens   int   // of the prompt
	Most     int64 // nanoseconds for which it may be kept
}

// Core decides which programs run. Times are nanoseconds of any monotonic clock.
type Core struct {
	limit    float64 // tokens of all footprints
	own      float64 // sum of counted footprints
	programs map[sessions.Key]*program
	sessions map[sessions.Key]*session
	stored   map[sessions.Key]*session // by the last stored response of each
	away     list                      // counted sessions whose last turn another replica dispatched, by that time
	idle     list                      // counted sessions without a turn in flight, by the end of the last one
	quiet    list                      // all programs, by the last turn
	turns    []turn                    // by slot
	free     []uint32
	kept     int
	seq      uint64
	reviewed int64
	shared   float64 // learned tokens of a new agent's prompt that an engine holds
	typical  float64 // learned tokens that an agent does not share
	fresh    float64 // learned share of a new agent's prompt that no engine holds
	dropped  uint64
	woken    []uint64
	order    []*program // scratch
}

// program is the state of one program. at is the time of its last turn.
type program struct {
	node
	key, tenant sessions.Key
	number      uint64  // order of the first turns
	own         float64 // counted tokens of its sessions
	sessions    []*session
	turns       int // kept or in flight
	kept        []uint32
}

// session is the state of one agent of a program.
type session struct {
	node
	key     sessions.Key
	program *program
	own     float64 // tokens that it does not share with other agents
	tokens  int     // of its last prompt
	placed  bool    // own is measured
	counted bool
	away    bool // it is in the list away
	remote  bool // only other replicas have had its turns
	flying  int
	stored  sessions.Key // its last stored response
}

type turn struct {
	Turn
	session *session
	since   int64
	need    float64 // tokens that it adds to the footprint
	gen     uint32
	state   turnState
}

type turnState uint8

const (
	unused turnState = iota
	kept
	running
)

// NewCore returns a Core without a limit.
func NewCore() *Core {
	return &Core{limit: math.Inf(1), programs: map[sessions.Key]*program{}, sessions: map[sessions.Key]*session{}, stored: map[sessions.Key]*session{}, fresh: firstGuess, reviewed: math.MinInt64 / 2}
}

// SetLimit sets the number of tokens that running programs may hold together.
func (c *Core) SetLimit(tokens float64) { c.limit = tokens }

// Offer begins a turn. If waits is true, the turn is kept until Woken returns its handle. The handle is
// 0 for a turn that is not tracked.
func (c *Core) Offer(now int64, t Turn) (h uint64, waits bool) {
	c.expire(now)
	s := c.session(now, t)
	if s == nil {
		c.dropped++
		return 0, false
	}
	slot := c.slot()
	w := &c.turns[slot]
	w.Turn, w.session, w.since, w.state = t, s, now, kept
	w.need = c.needOf(s, t.Tokens)
	h = uint64(w.gen)<<32 | uint64(slot)
	s.program.turns++
	if c.kept == 0 && c.own+w.need <= c.limit {
		c.admit(w)
		return h, false
	}
	s.program.kept = append(s.program.kept, slot)
	c.kept++
	c.review(now)
	if at := slices.Index(c.woken, h); at >= 0 {
		c.woken = slices.Delete(c.woken, at, at+1)
		return h, false
	}
	return h, true
}

// needOf returns the tokens by which a turn raises the footprint.
func (c *Core) needOf(s *session, tokens int) float64 {
	if s.tokens == 0 {
		if s.counted {
			return float64(tokens)*c.fresh - s.own
		}
		return float64(tokens) * c.fresh
	}
	need := float64(max(tokens-s.tokens, 0))
	if !s.counted {
		need += s.own
	}
	return need
}

// session returns the session of a turn, nil if there are too many.
func (c *Core) session(now int64, t Turn) *session {
	s := c.sessions[t.Session]
	if t.Previous != 0 && c.stored[t.Previous] != nil {
		s = c.stored[t.Previous]
	}
	switch {
	case s == nil:
		if s = c.newSession(now, t); s == nil {
			return nil
		}
	case s.remote && s.program.key != t.Program:
		c.move(now, s, t)
	case s.remote:
		s.program.tenant = t.Tenant
	}
	c.quiet.remove(&s.program.node)
	c.quiet.add(&s.program.node, now)
	return s
}

// newSession adds a session, and its program if it is new. It returns nil if there are too many.
func (c *Core) newSession(now int64, t Turn) *session {
	p := c.programs[t.Program]
	if len(c.sessions) >= maxSessions || p == nil && len(c.programs) >= maxPrograms {
		return nil
	}
	if p == nil {
		c.seq++
		p = &program{key: t.Program, tenant: t.Tenant, number: c.seq}
		p.of = p
		c.programs[t.Program] = p
		c.quiet.add(&p.node, now)
	}
	s := &session{key: t.Session, program: p}
	s.of = s
	p.sessions = append(p.sessions, s)
	c.sessions[t.Session] = s
	return s
}

// move assigns a session that other replicas reported without its program to the program of its first
// turn here.
func (c *Core) move(now int64, s *session, t Turn) {
	from, p := s.program, c.programs[t.Program]
	if p == nil {
		c.seq++
		p = &program{key: t.Program, tenant: t.Tenant, number: min(c.seq, from.number)}
		p.of = p
		c.programs[t.Program] = p
		c.quiet.add(&p.node, now)
	}
	if s.counted {
		from.own -= s.own
		p.own += s.own
	}
	from.sessions = slices.DeleteFunc(from.sessions, func(o *session) bool { return o == s })
	p.sessions, s.program = append(p.sessions, s), p
	if len(from.sessions) == 0 {
		c.quiet.remove(&from.node)
		delete(c.programs, from.key)
	}
}

// Knows reports whether a session is tracked.
func (c *Core) Knows(key sessions.Key) bool { return c.sessions[key] != nil }

// Seen reports that another replica has dispatched a turn of a session. A session that is not known here
// counts with a typical context until its first turn here.
func (c *Core) Seen(now int64, key sessions.Key) {
	c.expire(now)
	s := c.sessions[key]
	if s == nil {
		if s = c.newSession(now, Turn{Program: key, Session: key}); s == nil {
			return
		}
		s.remote, s.own = true, c.typical
	}
	c.quiet.remove(&s.program.node)
	c.quiet.add(&s.program.node, now)
	if !s.counted {
		s.counted = true
		c.add(s.program, s.own)
	}
	if s.flying == 0 {
		c.unlist(s)
		s.away = true
		c.away.add(&s.node, now)
	}
}

// unlist removes a session from the lists of contexts without a turn in flight here.
func (c *Core) unlist(s *session) {
	if s.away {
		c.away.remove(&s.node)
	} else {
		c.idle.remove(&s.node)
	}
	s.away = false
}

func (c *Core) slot() uint32 {
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		c.turns[slot].gen++
		return slot
	}
	c.turns = append(c.turns, turn{gen: 1})
	return uint32(len(c.turns) - 1)
}

// turn returns the turn of a handle, nil if it has ended.
func (c *Core) turn(h uint64) *turn {
	slot := uint32(h)
	if h == 0 || int(slot) >= len(c.turns) {
		return nil
	}
	if w := &c.turns[slot]; w.gen == uint32(h>>32) && w.state != unused {
		return w
	}
	return nil
}

// admit lets a turn run.
func (c *Core) admit(w *turn) {
	s := w.session
	w.need = c.needOf(s, w.Tokens) // another turn of the session may have run since
	w.state = running
	s.flying++
	if !s.counted {
		s.counted = true
		c.add(s.program, s.own)
	} else if s.flying == 1 {
		c.unlist(s)
	}
	c.grow(s, w.Tokens)
}

// grow counts a prompt of a session.
func (c *Core) grow(s *session, tokens int) {
	more := float64(tokens - s.tokens)
	if s.tokens == 0 {
		more = float64(tokens)*c.fresh - s.own
	}
	c.own += max(s.own+more, 0) - s.own
	s.program.own += max(s.own+more, 0) - s.own
	s.own, s.tokens = max(s.own+more, 0), tokens
}

func (c *Core) add(p *program, tokens float64) {
	c.own += tokens
	p.own += tokens
}

// Place reports the exact length of a turn's prompt, and the tokens that its engine has to compute.
// The rest of an agent's first prompt is shared with other agents, so it does not count.
func (c *Core) Place(h uint64, input, missing int) {
	w := c.turn(h)
	if w == nil || w.state != running || input <= 0 {
		return
	}
	s := w.session
	if s.placed {
		c.grow(s, input)
		return
	}
	own := float64(missing)
	if s.remote { // an engine holds its earlier turns
		own = max(own, float64(input)-c.shared)
		c.add(s.program, own-s.own)
		s.own, s.tokens, s.placed, s.remote = own, input, true, false
		return
	}
	c.shared += learnRate * (float64(input-missing) - c.shared)
	share := min(max(float64(missing)/float64(input), 0), 1)
	c.fresh += learnRate * (share - c.fresh)
	c.add(s.program, own-s.own)
	s.own, s.tokens, s.placed = own, input, true
}

// Stored reports that an engine stores a turn's answer under a name.
func (c *Core) Stored(h uint64, response sessions.Key) {
	w := c.turn(h)
	if w == nil || response == 0 {
		return
	}
	s := w.session
	delete(c.stored, s.stored)
	s.stored = response
	c.stored[response] = s
}

// Release ends a turn in any state.
func (c *Core) Release(now int64, h uint64) {
	w := c.turn(h)
	if w == nil {
		return
	}
	s := w.session
	if w.state == kept {
		c.unkeep(s.program, uint32(h))
	} else if s.flying--; s.flying == 0 {
		c.idle.add(&s.node, now)
		c.typical += learnRate * (s.own - c.typical)
	}
	s.program.turns--
	w.state, w.session = unused, nil
	c.free = append(c.free, uint32(h))
	c.expire(now)
	c.review(now)
}

func (c *Core) unkeep(p *program, slot uint32) {
	at := slices.Index(p.kept, slot)
	p.kept = slices.Delete(p.kept, at, at+1)
	c.kept--
}

// Advance applies the passing of time.
func (c *Core) Advance(now int64) {
	c.expire(now)
	c.review(now)
}

// expire removes contexts that did not return in time, and programs that have been quiet for long.
func (c *Core) expire(now int64) {
	for n := c.idle.first; n != nil && now-n.at >= returnWithin; n = c.idle.first {
		c.uncount(n.of.(*session))
	}
	for n := c.away.first; n != nil && now-n.at >= awayWithin; n = c.away.first {
		c.uncount(n.of.(*session))
	}
	for n := c.quiet.first; n != nil && now-n.at >= keepFor; n = c.quiet.first {
		p := n.of.(*program)
		c.quiet.remove(n)
		if p.turns > 0 {
			c.quiet.add(n, now)
			continue
		}
		for _, s := range p.sessions {
			if s.counted {
				c.unlist(s)
				c.add(p, -s.own)
			}
			delete(c.sessions, s.key)
			delete(c.stored, s.stored)
		}
		delete(c.programs, p.key)
	}
}

// uncount stops counting a context.
func (c *Core) uncount(s *session) {
	c.unlist(s)
	s.counted = false
	c.add(s.program, -s.own)
}

// review admits kept turns. Tenants take turns by the memory of their programs, the least first. Each
// takes its oldest program, until the next program does not fit. Programs behind it are kept, so smaller
// programs do not overtake a program for ever. A turn that reaches its limit is admitted.
func (c *Core) review(now int64) {
	if c.kept == 0 || now-c.reviewed < reviewEvery {
		return
	}
	c.reviewed = now
	c.order = c.order[:0]
	for _, p := range c.programs {
		if p.own > 0 || len(p.kept) > 0 {
			c.order = append(c.order, p)
		}
	}
	slices.SortFunc(c.order, func(a, b *program) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.number, b.number))
	})
	c.fill(c.tenants())
	for _, p := range c.order {
		for len(p.kept) > 0 && now-c.turns[p.kept[0]].since >= c.turns[p.kept[0]].Most {
			c.wake(p)
		}
	}
	clear(c.order)
}

// queue is the rest of one tenant's programs, the oldest first.
type queue struct {
	programs []*program
	has      float64 // tokens of the admitted ones
}

// tenants divides order by tenant.
func (c *Core) tenants() (out []queue) {
	for from := 0; from < len(c.order); {
		to := from + 1
		for to < len(c.order) && c.order[to].tenant == c.order[from].tenant {
			to++
		}
		out = append(out, queue{programs: c.order[from:to]})
		from = to
	}
	return out
}

// fill admits programs until the next one does not fit.
func (c *Core) fill(tenants []queue) {
	for sum, first := 0.0, true; ; first = false {
		next := -1
		for i := range tenants {
			if q := &tenants[i]; len(q.programs) > 0 && (next < 0 || q.has < tenants[next].has ||
				q.has == tenants[next].has && q.programs[0].number < tenants[next].programs[0].number) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		q := &tenants[next]
		p := q.programs[0]
		need := p.own
		for _, slot := range p.kept {
			need += c.turns[slot].need
		}
		if sum += need; sum > c.limit && !first {
			return
		}
		q.programs, q.has = q.programs[1:], q.has+need
		for len(p.kept) > 0 {
			c.wake(p)
		}
	}
}

// wake admits the longest kept turn of a program.
func (c *Core) wake(p *program) {
	slot := p.kept[0]
	c.unkeep(p, slot)
	c.admit(&c.turns[slot])
	c.woken = append(c.woken, uint64(c.turns[slot].gen)<<32|uint64(slot))
}

// Woken appends the handles of turns that are no longer kept to list.
func (c *Core) Woken(list []uint64) []uint64 {
	list = append(list, c.woken...)
	c.woken = c.woken[:0]
	return list
}

// Status is the state of a Core at one moment.
type Status struct {
	Model     string  `json:"model"` // set by the caller
	Programs  int     `json:"programs"`
	Kept      int     `json:"kept_requests"`
	Footprint float64 `json:"footprint_tokens"`
	Limit     float64 `json:"limit_tokens"` // 0: unknown
	Untracked uint64  `json:"untracked_requests"`
}

// Status returns the state.
func (c *Core) Status() Status {
	out := Status{Programs: len(c.programs), Kept: c.kept, Footprint: c.own, Limit: c.limit, Untracked: c.dropped}
	if math.IsInf(c.limit, 1) {
		out.Limit = 0
	}
	return out
}

// node is an entry of a list.
type node struct {
	of         any // *session or *program
	at         int64
	prev, next *node
	in         bool
}

// list is in order of time.
type list struct{ first, last *node }

func (l *list) add(n *node, at int64) {
	n.at, n.in, n.prev, n.next = at, true, l.last, nil
	if l.last != nil {
		l.last.next = n
	} else {
		l.first = n
	}
	l.last = n
}

func (l *list) remove(n *node) {
	if !n.in {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.last = n.prev
	}
	n.prev, n.next, n.in = nil, nil, false
}
