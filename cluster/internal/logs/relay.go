package logs

import "github.com/grapevine-epp/grapevine/cluster/internal/group"

// Deltas for everybody cross the border to another zone once: one of its members, the relay, gets
// them as a frame that says so, and passes them on to the others there with the name of who wrote
// them. They keep their number, which heartbeats of the writer itself tell: who does not get what a
// relay was to pass on misses it as if it had been lost on the way, asks the writer, and is sent
// to directly for a while. Nothing else depends on a relay.

// relayed reports whether p may be sent to by way of another member of its zone: those who cannot
// read all that this member may write are not passed on to, as far as others know.
func (l *Log) relayed(p *group.Peer) bool {
	pl := l.of(p)
	return l.g.Abroad(p) && p.Up && p.Minor >= group.MinorRelay && pl.version >= l.version && !pl.direct.On(l.g.Now)
}

// relay returns the member of a zone that passes on what is sent to it, nil if there is none: the
// heaviest one for this member, so that members do not all burden the same.
func (l *Log) relay(zone string) (best *group.Peer) {
	for _, p := range l.g.Peers {
		switch {
		case p.Zone != zone || !l.relayed(p) || p.Leaving:
		case best == nil || l.fitter(p, best):
			best = p
		}
	}
	return best
}

func (l *Log) fitter(a, b *group.Peer) bool {
	if ua, ub := l.of(a).unfit.On(l.g.Now), l.of(b).unfit.On(l.g.Now); ua != ub {
		return ub
	}
	return group.Outranks(a.Hash, a.ID, b.Hash, b.ID, l.g.SelfHash)
}

// spread sends deltas to everybody.
func (l *Log) spread(frame []byte) {
	if !l.g.Opt.Relay {
		l.g.Broadcast(group.Live, l.idx, frame)
		return
	}
	relays := map[string]*group.Peer{} // by zone
	count := map[string]int{}
	for _, p := range l.g.Peers {
		if l.relayed(p) {
			if count[p.Zone]++; count[p.Zone] == 2 {
				relays[p.Zone] = l.relay(p.Zone)
			}
		}
	}
	var direct, via []*group.Peer
	for _, p := range l.g.Peers {
		switch r := relays[p.Zone]; {
		case r == p:
			via = append(via, p)
		case r == nil || !l.relayed(p):
			direct = append(direct, p)
		default:
			pl := l.of(p)
			pl.behind, pl.by = l.sentAll, r.ID
		}
	}
	if len(via) == 0 {
		l.g.Broadcast(group.Live, l.idx, frame)
		return
	}
	l.g.SendTo(direct, group.Live, l.idx, frame)
	l.g.SendTo(via, group.Live, l.idx, group.KindOf(frame, group.KindRelay))
}

// passOn gives deltas of p, as they came, to the others of this member's zone. They may have been
// merged here or not: whoever gets them judges for itself. version is that of the log at p.
func (l *Log) passOn(p *group.Peer, version uint64, body []byte) {
	var to []*group.Peer
	for _, q := range l.g.Peers {
		if q != p && q.Link && q.Zone == l.g.Opt.Self.Zone && q.Zone != "" && q.Minor >= group.MinorRelay && l.of(q).version >= version {
			to = append(to, q)
		}
	}
	by := group.Relayed{ID: []byte(p.ID), Boot: p.Boot}
	frame := append(by.Append(l.g.Frame(group.KindRelayed)), body...)
	if len(frame) > group.MaxFrame {
		return
	}
	l.g.Stats.Relayed += uint64(len(to))
	l.g.SendTo(to, group.Live, l.idx, frame)
}

// doubt notes that p did not get what another member was to pass on to it, whoever is to blame:
// p is sent to directly for a while, and the other one is not asked first.
func (l *Log) doubt(p *group.Peer) {
	pl := l.of(p)
	if pl.direct.On(l.g.Now) {
		return
	}
	l.g.Stats.RelayMissed++
	pl.direct.Fail(l.g.Now)
	for _, q := range l.g.Peers {
		if q.ID == pl.by {
			l.of(q).unfit.Fail(l.g.Now)
		}
	}
}
