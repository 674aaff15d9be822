package logs

import "github.com/grapevine-epp/grapevine/cluster/internal/group"

// A broadcast delta is sent to each remote zone once. The zone's relay member receives it and
// forwards it to the other members of that zone, keeping the original writer's name. Forwarded
// deltas keep their frame number, which the writer's heartbeats carry. So a member that does not
// get a forwarded frame detects the loss as usual and asks the writer, which then sends to it
// directly for a while. Nothing else depends on a relay.

// relayed reports whether p may be reached through another member of its zone. Members that may be
// unable to read all payloads of this member are not.
func (l *Log) relayed(p *group.Peer) bool {
	pl := l.of(p)
	return l.g.InRemoteZone(p) && p.Up && p.Minor >= group.MinorRelay && pl.version >= l.version && !pl.direct.On(l.g.Now)
}

// relay returns the member of a zone that forwards frames, or nil. It is the heaviest one for this
// member, so that different writers use different relays.
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

// spread sends deltas to all peers.
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

// passOn forwards deltas of p unchanged to the other members of this member's zone. Receivers
// decide for themselves whether to merge them. version is p's log version.
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

// suspect records that p did not get a frame that a relay should have forwarded. For a while p gets
// frames directly, and the relay is avoided.
func (l *Log) suspect(p *group.Peer) {
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
