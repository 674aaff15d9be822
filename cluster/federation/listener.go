package federation

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// listener is the side of a pair that asks: one replica of the other cluster at a time,
// another one when that says nothing.
type listener struct {
	target  int    // that is asked
	session uint64 // begins anew with each change of it
	began   time.Duration
	since   time.Time // when the session began
	next    time.Time // next beat
	boot    uint64    // who answers; 0: nobody has
	seq     uint64
	reading time.Duration // of the last say: it was said after that, by our clock
	heard   time.Time     // when the last say of the session came; zero: none
	replica string
	last    time.Time // when any say of any session came
	until   time.Time // end of the lease
	rtt     time.Duration
	why     string // why the last target did not answer
	pools   []*imported
	told    []verdict // what it makes of our exports, while its lease lasts
	bytes   bucket
	begins  bucket // bytes of filters that begin anew, whatever pools they are of
	in, out uint64 // bytes
	faults  uint64 // messages that were refused
}

// imported is one pool of the peer.
type imported struct {
	told
	refused string         // why it is not accepted
	sink    *filter.Sink   // nil: no filter is wanted
	secret  *filter.Secret // of the federation, that its keys are made with
	// before is used while sink, which is made with another secret, is not whole.
	before       *filter.Sink
	beforeSecret *filter.Secret
	note         string    // why its filter is not used, or wrong
	fault        string    // why the last part of it was not taken; "": it was
	moved        time.Time // when a part was taken last, or the sink was made
	begun        time.Time
	wanted       time.Time // when a part was asked for last; zero: none is awaited
	most         int       // bytes that were asked for
}

// silences is how many beats without an answer make a replica silent: then another one
// is asked. It must be less than there are in a lease.
const silences = 2

// beginPause is the least time between two beginnings of a pool's filter.
const beginPause = time.Second

func (l *listener) open(c *Core, p *peer, now time.Time) {
	l.bytes = bucket{rate: float64(p.Rate), tokens: filter.MaxPart, at: now}
	l.begins = bucket{rate: float64(p.MaxFilter), tokens: float64(p.MaxFilter), at: now}
	l.target = c.firstTarget(p)
	l.restart(c, now)
}

// restart begins a session.
func (l *listener) restart(c *Core, now time.Time) {
	l.session++
	l.since, l.next, l.began = now, now, now.Sub(c.base)
	l.boot, l.seq, l.reading, l.heard = 0, 0, 0, time.Time{}
	for _, i := range l.pools {
		i.wanted = time.Time{}
	}
}

// sessionID is what answers must repeat. It differs between processes.
func (l *listener) sessionID(c *Core) uint64 {
	return c.o.Boot<<sessionBits | l.session&(1<<sessionBits-1)
}

const sessionBits = 20

// sameProcess reports whether two sessions are of one process.
func sameProcess(a, b uint64) bool { return a>>sessionBits == b>>sessionBits }

// another asks the next target; why says what is wrong with this one.
func (l *listener) another(c *Core, p *peer, why string, now time.Time) {
	l.why, c.dirty = why, true
	if len(p.Targets) > 0 {
		l.target = (l.target + 1) % len(p.Targets)
	}
	l.restart(c, now)
}

// SetTargets replaces where a cluster is asked, such as when a name stands for other
// addresses. Whom it asks now it goes on asking, if it is still there.
func (c *Core) SetTargets(cluster string, targets []string, now time.Time) {
	p := c.peer(cluster)
	if p == nil || slices.Equal(p.Targets, targets) {
		return
	}
	asked := ""
	if len(p.Targets) > 0 {
		asked = p.Targets[p.target]
	}
	p.Targets, c.dirty = slices.Clone(targets), true
	if i := slices.Index(p.Targets, asked); i >= 0 {
		p.target = i
		return
	}
	p.target = c.firstTarget(p)
	p.restart(c, now)
}

// firstTarget is where a peer is asked first: replicas begin with different ones, so
// that those of the peer share the work.
func (c *Core) firstTarget(p *peer) int {
	if len(p.Targets) == 0 {
		return 0
	}
	high, _ := bits.Mul64((c.o.Boot|1)*0x9e3779b97f4a7c15, uint64(len(p.Targets)))
	return int(high)
}

// Broken tells that the transport lost the target that is asked, or cannot reach it.
func (c *Core) Broken(cluster, target, why string, now time.Time) {
	p := c.peer(cluster)
	if p == nil || len(p.Targets) == 0 || p.Targets[p.target] != target {
		return
	}
	if now.Sub(p.since) < c.o.Beat/4 { // not in a circle at once
		p.why, p.listener.next, c.dirty = why, now.Add(c.o.Beat/4), true
		return
	}
	p.another(c, p, why, now)
}

// tickListener asks what is to be asked.
func (c *Core) tickListener(p *peer, now time.Time, out []Send) []Send {
	l := &p.listener
	if len(p.Targets) == 0 {
		return out
	}
	if silent := now.Sub(later(l.since, l.heard)); silent > silences*c.o.Beat {
		why := fmt.Sprintf("no answer from %s for %s", p.Targets[l.target], silent.Round(time.Millisecond))
		if l.why != "" && l.heard.IsZero() {
			why = l.why
		}
		l.another(c, p, why, now)
	}
	c.expire(p, now)
	beat := !now.Before(l.next)
	wants := c.wants(p, now)
	if !beat && len(wants) == 0 {
		return out
	}
	if beat {
		l.next = now.Add(c.o.Beat)
	}
	return c.ask(p, beat, wants, now, out)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// expire makes what was said of no use once the lease has ended.
func (c *Core) expire(p *peer, now time.Time) {
	l := &p.listener
	if !l.until.IsZero() && !now.Before(l.until) {
		l.until, l.told, l.rtt, c.dirty = time.Time{}, nil, 0, true
	}
}

func (c *Core) ask(p *peer, beat bool, wants []want, now time.Time, out []Send) []Send {
	m := ask{session: p.sessionID(c), at: now.Sub(c.base), beat: beat, wants: wants, print: c.print}
	frame := m.append(nil)
	p.listener.out += uint64(len(frame))
	return c.send(p, p.Targets[p.target], frame, out)
}

// wants returns what is to be asked for of filters, within the pair's bandwidth.
func (c *Core) wants(p *peer, now time.Time) (list []want) {
	l := &p.listener
	if l.heard.IsZero() {
		return nil
	}
	for _, i := range l.pools {
		if i.sink == nil || !i.sink.Behind(i.head) || !i.wanted.IsZero() && now.Sub(i.wanted) < silences*c.o.Beat {
			continue
		}
		if i.head.Epoch != i.sink.Position().Epoch && now.Sub(i.begun) < beginPause {
			continue
		}
		most := min(l.bytes.fill(now), filter.MaxPart)
		if most < filter.MinPart {
			break
		}
		at := i.sink.Position()
		if at.Epoch != i.head.Epoch {
			at = filter.Position{Epoch: i.head.Epoch}
		}
		l.bytes.tokens -= float64(most) // what does not come is given back
		i.wanted, i.most = now, most
		list = append(list, want{pool: i.Pool, at: at, most: uint32(most)})
		if len(list) == 4 {
			break // the rest with the next question
		}
	}
	return list
}

// current reports whether an answer belongs to the session that there is.
func (c *Core) current(p *peer, link string, session uint64) bool {
	return len(p.Targets) > 0 && session == p.sessionID(c) && link == p.Targets[p.target]
}

// heard takes what the peer says. What belongs to an earlier question than the last
// that was taken, or to an earlier session, is late and left alone.
func (c *Core) heard(p *peer, link string, m *say, now time.Time, out []Send) []Send {
	l := &p.listener
	if !c.current(p, link, m.session) {
		return out
	}
	p.hear(m.print, now, c.o.Lease)
	sent := now.Sub(c.base)
	if m.at > sent || m.at < l.began || l.boot != 0 && m.boot != l.boot {
		if l.boot != 0 && m.boot != l.boot {
			l.another(c, p, "another process answers", now)
		}
		return out
	}
	if m.seq <= l.seq {
		return out
	}
	if m.leaving {
		l.another(c, p, fmt.Sprintf("%s is leaving", m.replica), now)
		return out
	}
	reading := min(m.at+m.held, sent) // it was said after that, whatever the way took
	l.boot, l.seq, l.reading, l.heard, l.last = m.boot, m.seq, reading, now, now
	l.replica, l.why = m.replica, ""
	if until := c.base.Add(reading + min(m.lease, maxLease)); until.After(l.until) {
		l.until = until
	}
	if trip := sent - reading; l.rtt == 0 {
		l.rtt = trip
	} else {
		l.rtt += (trip - l.rtt) / 8
	}
	l.told = m.heard
	c.take(p, m, now)
	c.dirty = true
	if wants := c.wants(p, now); len(wants) > 0 {
		out = c.ask(p, false, wants, now, out)
	}
	return out
}

// take replaces the peer's pools by those of a say. What is known of filters stays.
func (c *Core) take(p *peer, m *say, now time.Time) {
	l := &p.listener
	before := l.pools
	l.pools = nil
	room := p.MaxFilter
	for _, t := range m.exports {
		i := &imported{told: t}
		if at := slices.IndexFunc(before, func(o *imported) bool { return o.Pool == t.Pool }); at >= 0 {
			was := *before[at]
			i = &was
			i.told = t
		}
		i.refused, i.note = "", ""
		switch {
		case !matches(p.Accept, t.Pool):
			i.refused = "not accepted here"
		case t.head.Epoch == 0:
			i.note = "it sends no filter, or none yet"
		case c.o.Secret == nil:
			i.note = "no secret of the federation is configured here"
		case c.secret(m.secret) == nil:
			i.note = "it has another secret of the federation"
		case i.needs() > room:
			i.note = fmt.Sprintf("its filter is larger than the %d MiB accepted of this cluster", p.MaxFilter>>20)
		}
		if i.refused != "" || i.note != "" {
			i.sink, i.before = nil, nil
		} else {
			room -= i.needs()
			i.follow(c, p, c.secret(m.secret), now)
		}
		l.pools = append(l.pools, i)
	}
	slices.SortFunc(l.pools, func(a, b *imported) int { return comparePools(a.Pool, b.Pool) })
}

// needs returns the memory that the pool's filters take: two of what its head says while one
// replaces the other, and what is used until the new one is whole.
func (i *imported) needs() int {
	n := i.sink.Needs(i.head)
	if i.before != nil {
		n += i.before.Filter().Bytes()
	}
	return max(n, 2*i.head.Bytes())
}

// follow sees to it that there is a filter by keys of a secret. That by another one goes on
// being used until it is whole.
func (i *imported) follow(c *Core, p *peer, s *filter.Secret, now time.Time) {
	if i.sink != nil && i.secret == s {
		if _, whole := i.sink.Complete(); whole {
			i.before = nil
		}
		return
	}
	if i.sink != nil {
		if _, whole := i.sink.Complete(); whole {
			i.before, i.beforeSecret = i.sink, i.secret
		}
	}
	i.secret, i.moved, i.fault = s, now, ""
	i.sink = filter.NewSink(p.pairSecret(s), filter.Way{Exporter: p.Name, Importer: c.o.Self, Namespace: i.Pool.Namespace, Pool: i.Pool.Name}, p.MaxFilter)
}

// gotPart takes a part of a filter, and asks for the next.
func (c *Core) gotPart(p *peer, link string, m *partOf, now time.Time, out []Send) []Send {
	l := &p.listener
	if !c.current(p, link, m.session) {
		return out
	}
	k := slices.IndexFunc(l.pools, func(i *imported) bool { return i.Pool == m.pool })
	if k < 0 || l.pools[k].sink == nil {
		return out
	}
	i := l.pools[k]
	if i.wanted.IsZero() {
		return out // nobody has asked, or the answer came before
	}
	head, err := filter.HeadOf(m.part)
	begins := err == nil && head.Epoch != i.sink.Position().Epoch
	if begins && !l.mayBegin(i, head, now) {
		return out // it is asked for again
	}
	moved := false
	if err == nil {
		moved, err = i.sink.Apply(m.part)
	}
	if begins && i.sink.Position().Epoch == head.Epoch {
		i.begun = now
		l.begins.tokens -= float64(head.Bytes())
	}
	if err != nil {
		c.refused[RefusedFilter]++
		l.faults++
		i.fault, c.dirty = err.Error(), true
		return out
	}
	if !moved {
		return out
	}
	l.bytes.tokens += float64(i.most - len(m.part)) // a part may be a little larger than was asked for
	i.fault, i.moved = "", now
	i.wanted, c.dirty = time.Time{}, true
	if wants := c.wants(p, now); len(wants) > 0 {
		out = c.ask(p, false, wants, now, out)
	}
	return out
}

// mayBegin reports whether room is made for a pool's filter of a head: of that which was told
// last, and not too soon after another one.
func (l *listener) mayBegin(i *imported, h filter.Head, now time.Time) bool {
	return h.Epoch == i.head.Epoch && h.Buckets == i.head.Buckets && now.Sub(i.begun) >= beginPause && l.begins.fill(now) >= h.Bytes()
}

// wasRefused notes why an answer was not given, and asks another replica. Where one target
// stands for all of them, the next question may come to another one: it does not wait for a
// beat, so that a replica that drains for a minute does not have its cluster fall silent.
func (c *Core) wasRefused(p *peer, link string, m *refuse, now time.Time) {
	if !c.current(p, link, m.session) {
		return
	}
	why := fmt.Sprintf("%s says: %s", p.Targets[p.target], m.reason)
	if len(p.Targets) > 1 && now.Sub(p.since) >= c.o.Beat/4 {
		p.another(c, p, why, now)
		return
	}
	p.why, c.dirty = why, true
	if soon := now.Add(c.o.Beat / 4); soon.Before(p.listener.next) {
		p.listener.next = soon
	}
}
