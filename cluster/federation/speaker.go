package federation

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// speaker is the answering side of a pair. It answers asks and sends updates to sessions within
// their lease.
type speaker struct {
	sessions []*session
	secret   *filter.Secret // federation secret that the sources use
	sources  map[PoolKey]*filter.Source
	coming   map[PoolKey]*filter.Source // sources with the next secret, until all are complete
	bytes    bucket
	idle     time.Time // since when there is no session; zero: there is one
	in, out  uint64    // bytes
}

// session is one replica of the other cluster that asks here.
type session struct {
	link    string
	id      uint64
	at      time.Duration // of its last ask, by its clock
	asked   time.Time     // when that ask arrived
	seq     uint64
	said    time.Time // when the last say was sent
	changed bool      // since then
	urgent  bool      // pools were added or removed
	proof   proof
	print   uint64 // of the asking group; 0: unknown
}

// proof is whether a session's asks are known to be live rather than replayed.
type proof uint8

const (
	assumed   proof = iota // the transport does not replay messages
	suspected              // asks may be replayed
	proven
)

// MarkUnproven marks the last ask on a link as possibly replayed. If there are too many sessions, doubted
// ones are dropped first, until MarkProven.
func (c *Core) MarkUnproven(cluster, link string) {
	if s := c.sessionOf(cluster, link); s != nil && s.proof == assumed {
		s.proof = suspected
	}
}

// MarkProven marks the last ask on a link as made for this process.
func (c *Core) MarkProven(cluster, link string) {
	if s := c.sessionOf(cluster, link); s != nil {
		s.proof = proven
	}
}

func (c *Core) sessionOf(cluster, link string) *session {
	if p := c.peer(cluster); p != nil {
		if i := slices.IndexFunc(p.sessions, func(s *session) bool { return s.link == link }); i >= 0 {
			return p.sessions[i]
		}
	}
	return nil
}

// keepSources is how long filters are kept for a cluster that no longer asks.
const keepSources = time.Minute

func (s *speaker) open(rate int, secret *filter.Secret, now time.Time) {
	s.secret, s.sources = secret, map[PoolKey]*filter.Source{}
	s.bytes = bucket{rate: float64(rate), tokens: filter.MaxPart, at: now}
}

func (s *speaker) changed(urgent bool) {
	for _, x := range s.sessions {
		x.changed = true
		x.urgent = x.urgent || urgent
	}
}

func (c *Core) send(p *peer, to string, frame []byte, out []Send) []Send {
	return append(out, Send{Cluster: p.Name, To: to, Frame: frame})
}

// asked answers an ask.
func (c *Core) asked(p *peer, link string, m *ask, now time.Time, out []Send) []Send {
	if c.unready != "" || c.leaving {
		reason := c.unready
		if c.leaving {
			reason = "this replica is leaving"
		}
		frame := (&refuse{session: m.session, at: m.at, reason: reason}).append(nil)
		p.speaker.out += uint64(len(frame))
		return c.send(p, link, frame, out)
	}
	s := p.session(link, m)
	if s == nil {
		c.refused[RefusedSessions]++
		frame := (&refuse{session: m.session, at: m.at, reason: "too many replicas of your cluster are connected here"}).append(nil)
		return c.send(p, link, frame, out)
	}
	if m.at < s.at {
		return out // late; its wants are repeated or were answered
	}
	s.at, s.asked, s.print = m.at, now, m.print
	if m.beat && now.Sub(s.said) >= c.o.Push/8 {
		out = c.sendState(p, s, now, out)
	}
	for i := range m.wants {
		out = c.sendPart(p, s, &m.wants[i], now, out)
	}
	return out
}

// session returns the session of an ask, or nil if there are too many undoubted ones. There is one
// session per link; a new ID replaces it.
func (p *peer) session(link string, m *ask) *session {
	i := slices.IndexFunc(p.sessions, func(s *session) bool { return s.link == link })
	switch {
	case i >= 0 && p.sessions[i].id == m.session:
		return p.sessions[i]
	case i >= 0 && sameProcess(p.sessions[i].id, m.session) && m.at < p.sessions[i].at:
		return p.sessions[i] // late
	case i >= 0:
		*p.sessions[i] = session{link: link, id: m.session, proof: p.sessions[i].proof}
		return p.sessions[i]
	case len(p.sessions) >= maxSessions && !p.dropSuspected():
		return nil
	}
	s := &session{link: link, id: m.session}
	p.sessions = append(p.sessions, s)
	return s
}

// dropSuspected drops the doubted session with the oldest ask and reports whether there was one.
func (p *peer) dropSuspected() bool {
	oldest := -1
	for i, s := range p.sessions {
		if s.proof == suspected && (oldest < 0 || s.asked.Before(p.sessions[oldest].asked)) {
			oldest = i
		}
	}
	if oldest >= 0 {
		p.sessions = slices.Delete(p.sessions, oldest, oldest+1)
	}
	return oldest >= 0
}

// sendState sends a session the complete state.
func (c *Core) sendState(p *peer, s *session, now time.Time, out []Send) []Send {
	s.seq++
	m := say{
		session: s.id, at: s.at, held: now.Sub(s.asked), boot: c.o.Boot, seq: s.seq, lease: c.o.Lease, leaving: c.leaving, replica: c.o.Replica,
		heard: c.verdicts(p, now), print: c.print,
	}
	if p.speaker.secret != nil {
		m.secret = p.speaker.secret.ID()
	}
	for _, o := range c.exports {
		if matches(p.Export, o.Pool) {
			m.exports = append(m.exports, ack{Export: o.Export, head: c.source(p, o.Pool, now).Head()})
		}
	}
	m.servedKnown = c.serves
	for _, k := range c.served {
		if matches(p.Export, k) {
			m.served = append(m.served, k)
		}
	}
	frame := m.append(nil)
	s.said, s.changed, s.urgent = now, false, false
	p.speaker.out += uint64(len(frame))
	return c.send(p, s.link, frame, out)
}

// source returns the filter of a pool for a peer, or nil.
func (c *Core) source(p *peer, pool PoolKey, now time.Time) *filter.Source {
	s := p.sources[pool]
	if s == nil {
		if s = c.newSource(p, pool, p.speaker.secret, now); s != nil {
			p.sources[pool] = s
		}
	}
	return s
}

// newSource returns a filter for a secret, or nil if the secret has no hot set.
func (c *Core) newSource(p *peer, pool PoolKey, s *filter.Secret, now time.Time) *filter.Source {
	hot := c.hot[hotKey{pool, s}]
	if s == nil || hot == nil {
		return nil
	}
	c.epochs += 1 << 20 // a source counts its own restarts from there
	return filter.NewSource(hot, p.pairSecret(s), filter.Way{Exporter: c.o.Self, Importer: p.Name, Namespace: pool.Namespace, Pool: pool.Name}, c.rotation(now), c.epochs)
}

// exchange switches a peer's filters to the secret in use. Filters with the previous secret are
// sent until all new ones are complete.
func (c *Core) exchange(p *peer, now time.Time) {
	if p.speaker.secret == c.o.Secret {
		return
	}
	if p.coming == nil {
		p.coming = map[PoolKey]*filter.Source{}
	}
	for pool := range p.sources {
		if p.coming[pool] == nil {
			if s := c.newSource(p, pool, c.o.Secret, now); s != nil {
				p.coming[pool] = s
			}
		}
	}
	for _, s := range p.coming {
		if s.Rotate(c.rotation(now)); s.Head().Epoch == 0 {
			return
		}
	}
	for _, s := range p.sources {
		s.Close()
	}
	p.speaker.secret, p.sources, p.coming = c.o.Secret, p.coming, nil
	p.speaker.changed(true)
}

func (c *Core) rotation(now time.Time) uint64 { return uint64(now.UnixNano() / int64(c.o.Rotate)) }

// sendPart answers one want, within the pair's bandwidth. The peer repeats unanswered wants.
func (c *Core) sendPart(p *peer, s *session, w *want, now time.Time, out []Send) []Send {
	i := slices.IndexFunc(c.exports, func(o *own) bool { return o.Pool == w.pool })
	if i < 0 || !matches(p.Export, w.pool) {
		return out
	}
	source := c.source(p, w.pool, now)
	if source == nil || source.Head().Epoch == 0 {
		return out
	}
	most := min(int(w.most), p.speaker.bytes.fill(now))
	if most < filter.MinPart {
		c.refused[RefusedRate]++
		return out
	}
	frame := (&partOf{session: s.id, pool: w.pool}).append(nil)
	frame = source.AppendPart(frame, w.at, most)
	p.speaker.bytes.tokens -= float64(len(frame))
	p.speaker.out += uint64(len(frame))
	return c.send(p, s.link, frame, out)
}

// tickSpeaker drops expired sessions and sends changes to the others.
func (c *Core) tickSpeaker(p *peer, now time.Time, out []Send) []Send {
	p.sessions = slices.DeleteFunc(p.sessions, func(s *session) bool { return now.Sub(s.asked) >= c.o.Lease })
	for _, s := range p.sessions {
		if s.proof != suspected {
			p.hear(s.print, s.asked, c.o.Lease)
		}
	}
	switch {
	case len(p.sessions) > 0:
		p.idle = time.Time{}
	case p.idle.IsZero():
		p.idle = now
	case now.Sub(p.idle) > keepSources:
		p.closeSources(func(PoolKey) bool { return true })
	}
	p.closeSources(func(k PoolKey) bool {
		return !slices.ContainsFunc(c.exports, func(o *own) bool { return o.Pool == k })
	})
	c.exchange(p, now)
	for _, s := range p.sources {
		s.Rotate(c.rotation(now))
	}
	if c.unready != "" || c.leaving {
		return out
	}
	for _, s := range p.sessions {
		if s.urgent || s.changed && now.Sub(s.said) >= c.o.Push {
			out = c.sendState(p, s, now, out)
		}
	}
	return out
}

func (p *peer) closeSources(which func(PoolKey) bool) {
	for _, sources := range [...]map[PoolKey]*filter.Source{p.sources, p.coming} {
		for k, s := range sources {
			if which(k) {
				s.Close()
				delete(sources, k)
			}
		}
	}
}
