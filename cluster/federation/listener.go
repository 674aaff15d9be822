package federation

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// listener is the asking side of a pair. It asks one replica of the other cluster at a time, and
// switches when that replica is silent.
type listener struct {
	target  int    // index of the asked target
	session uint64 // incremented when the target changes
	began   time.Duration
	since   time.Time // when the session began
	next    time.Time // time of the next beat
	boot    uint64    // of the answering process; 0: no answer yet
	seq     uint64
	reading time.Duration // earliest time, by our clock, at which the last say was current
	heard   time.Time     // when the last say of the session arrived; zero: none
	replica string
	last    time.Time // when the last say of any session arrived
	until   time.Time // end of the lease
	rtt     time.Duration
	why     string // why the last target failed
	pools   []*imported
	served  []PoolKey // pools for which the peer's last say is complete
	serves  bool      // the peer sends served
	acks    []verdict // the peer's verdicts on our exports, while its lease lasts
	bytes   bucket
	begins  bucket // limits the bytes of new filters, over all pools
	in, out uint64 // bytes
	faults  uint64 // rejected messages
}

// imported is one pool of the peer.
type imported struct {
	ack
	refused string         // why it is not accepted; "": it is
	sink    *filter.Sink   // nil: no filter is wanted
	secret  *filter.Secret // federation secret for the filter's keys
	// before is used until sink, which uses another secret, is complete.
	before       *filter.Sink
	beforeSecret *filter.Secret
	note         string    // why its filter is unused or wrong
	fault        string    // why the last part was rejected; "": it was accepted
	moved        time.Time // when a part was last accepted, or the sink was made
	begun        time.Time
	wanted       time.Time // when a part was last requested; zero: none is outstanding
	most         int       // bytes requested
}

// silences is the number of beats without an answer after which the core asks another replica. It
// must be less than the number of beats in a lease.
const silences = 2

// beginPause is the minimum time between two restarts of a pool's filter.
const beginPause = time.Second

func (l *listener) open(c *Core, p *peer, now time.Time) {
	l.bytes = bucket{rate: float64(p.Rate), tokens: filter.MaxPart, at: now}
	l.begins = bucket{rate: float64(p.MaxFilter), tokens: float64(p.MaxFilter), at: now}
	l.target = c.firstTarget(p)
	l.restart(c, now)
}

// restart starts a session.
func (l *listener) restart(c *Core, now time.Time) {
	l.session++
	l.since, l.next, l.began = now, now, now.Sub(c.base)
	l.boot, l.seq, l.reading, l.heard = 0, 0, 0, time.Time{}
	for _, i := range l.pools {
		i.wanted = time.Time{}
	}
}

// sessionID is repeated in answers. It differs between processes.
func (l *listener) sessionID(c *Core) uint64 {
	return c.o.Boot<<sessionBits | l.session&(1<<sessionBits-1)
}

const sessionBits = 20

// sameProcess reports whether two sessions belong to one process.
func sameProcess(a, b uint64) bool { return a>>sessionBits == b>>sessionBits }

// another switches to the next target. why is the problem with the current one.
func (l *listener) another(c *Core, p *peer, why string, now time.Time) {
	l.why, c.dirty = why, true
	if len(p.Targets) > 0 {
		l.target = (l.target + 1) % len(p.Targets)
	}
	l.restart(c, now)
}

// SetTargets replaces the targets of a cluster, for example after a DNS change. The current target
// is kept if it is still in the list.
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

// firstTarget is the initial target of a peer. Replicas start at different targets to spread the
// load.
func (c *Core) firstTarget(p *peer) int {
	if len(p.Targets) == 0 {
		return 0
	}
	high, _ := bits.Mul64((c.o.Boot|1)*0x9e3779b97f4a7c15, uint64(len(p.Targets)))
	return int(high)
}

// Broken reports that the transport lost or cannot reach the current target.
func (c *Core) Broken(cluster, target, why string, now time.Time) {
	p := c.peer(cluster)
	if p == nil || len(p.Targets) == 0 || p.Targets[p.target] != target {
		return
	}
	if now.Sub(p.since) < c.o.Beat/4 { // avoid cycling through targets too fast
		p.why, p.listener.next, c.dirty = why, now.Add(c.o.Beat/4), true
		return
	}
	p.another(c, p, why, now)
}

// tickListener sends the asks that are due.
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

// expire drops a peer's data once its lease has ended.
func (c *Core) expire(p *peer, now time.Time) {
	l := &p.listener
	if !l.until.IsZero() && !now.Before(l.until) {
		l.until, l.acks, l.rtt, c.dirty = time.Time{}, nil, 0, true
	}
}

func (c *Core) ask(p *peer, beat bool, wants []want, now time.Time, out []Send) []Send {
	m := ask{session: p.sessionID(c), at: now.Sub(c.base), beat: beat, wants: wants, print: c.print}
	frame := m.append(nil)
	p.listener.out += uint64(len(frame))
	return c.send(p, p.Targets[p.target], frame, out)
}

// wants returns the filter parts to request, within the pair's bandwidth.
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
		l.bytes.tokens -= float64(most) // refunded if less arrives
		i.wanted, i.most = now, most
		list = append(list, want{pool: i.Pool, at: at, most: uint32(most)})
		if len(list) == 4 {
			break // the rest with the next ask
		}
	}
	return list
}

// current reports whether an answer belongs to the current session.
func (c *Core) current(p *peer, link string, session uint64) bool {
	return len(p.Targets) > 0 && session == p.sessionID(c) && link == p.Targets[p.target]
}

// heard handles a say. A say for an earlier session, or for an ask older than the last one
// answered, is late and ignored.
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
	reading := min(m.at+m.held, sent) // lower bound for when it was sent, for any transit time
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
	l.acks, l.served, l.serves = m.heard, m.served, m.servedKnown
	c.take(p, m, now)
	c.dirty = true
	if wants := c.wants(p, now); len(wants) > 0 {
		out = c.ask(p, false, wants, now, out)
	}
	return out
}

// take replaces the peer's pools with the pools of a say. Filter state is kept.
func (c *Core) take(p *peer, m *say, now time.Time) {
	l := &p.listener
	before := l.pools
	l.pools = nil
	room := p.MaxFilter
	for _, t := range m.exports {
		i := &imported{ack: t}
		if at := slices.IndexFunc(before, func(o *imported) bool { return o.Pool == t.Pool }); at >= 0 {
			was := *before[at]
			i = &was
			i.ack = t
		}
		i.refused, i.note = "", ""
		switch {
		case !matches(p.Accept, t.Pool):
			i.refused = "not accepted here"
		case t.head.Epoch == 0:
			i.note = "it has not sent a filter yet"
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

// needs returns the memory for the pool's filters: two of the announced size during a replacement,
// plus the filter in use until the new one is complete.
func (i *imported) needs() int {
	n := i.sink.Needs(i.head)
	if i.before != nil {
		n += i.before.Filter().Bytes()
	}
	return max(n, 2*i.head.Bytes())
}

// follow creates a filter for secret s if it is missing. A filter for another secret is used until
// the new one is complete.
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

// gotPart applies a part of a filter and requests the next.
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
		return out // not requested, or already received
	}
	head, err := filter.HeadOf(m.part)
	begins := err == nil && head.Epoch != i.sink.Position().Epoch
	if begins && !l.mayBegin(i, head, now) {
		return out // requested again later
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
	l.bytes.tokens += float64(i.most - len(m.part)) // a part may slightly exceed the requested size
	i.fault, i.moved = "", now
	i.wanted, c.dirty = time.Time{}, true
	if wants := c.wants(p, now); len(wants) > 0 {
		out = c.ask(p, false, wants, now, out)
	}
	return out
}

// mayBegin reports whether to allocate a pool's filter with this head. It must be the announced one
// and not follow too soon after another.
func (l *listener) mayBegin(i *imported, h filter.Head, now time.Time) bool {
	return h.Epoch == i.head.Epoch && h.Buckets == i.head.Buckets && now.Sub(i.begun) >= beginPause && l.begins.fill(now) >= h.Bytes()
}

// wasRefused records why an ask was refused, and asks another replica. If one target stands for all
// replicas, the next ask may reach another one, so it does not wait for a beat. Otherwise a replica
// that drains for a minute would make its cluster silent.
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
