package cluster

import (
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// Status is the group as this replica sees it.
type Status struct {
	Self    Member          `json:"self"`
	Phase   string          `json:"phase"`
	Health  Health          `json:"health"`
	Bus     BusStatus       `json:"bus"`
	Peers   []Peer          `json:"peers"`
	Lost    []Lost          `json:"lost"` // members that vanished without leaving
	Logs    []LogState      `json:"logs"`
	Stats   group.Stats     `json:"-"`
	Memory  group.MemoryUse `json:"held"`
	Uptime  time.Duration
	Leaving bool   `json:"leaving"`
	trouble string // what does not fit between members
	aside   string // what is not shared, and why
}

// Peer is another member as this replica sees it.
type Peer struct {
	Member
	State    string        `json:"state"` // up, foreign, silent, unlinked, down
	For      time.Duration `json:"for"`
	Met      bool          `json:"met"` // it was up once
	Phase    string        `json:"phase"`
	Leaving  bool          `json:"leaving"`
	RTT      time.Duration `json:"rtt"`
	Unknown  int           `json:"unknown_states"` // states it has and this replica has not
	Traffic  []StateFlow   `json:"traffic"`
	Logs     []logs.PeerLogView
	QueueLen int    `json:"queue_frames"`
	Dropped  uint64 `json:"dropped_frames"`
	// Protocol is the version of the protocol that a foreign member speaks; 0 for others.
	Protocol byte `json:"protocol,omitempty"`
	// Replaced says that it is down, and that another one came in its place, or it itself
	// as another process.
	Replaced bool `json:"replaced,omitempty"`
}

// StateFlow is the traffic of one state with one peer. State is "heartbeat"
// for what belongs to none.
type StateFlow struct {
	State string `json:"state"`
	group.Traffic
	InPerSec  float64 `json:"in_bytes_per_second"`
	OutPerSec float64 `json:"out_bytes_per_second"`
}

// LogState sums up this replica's knowledge of a log.
type LogState struct {
	Name                                             string `json:"name"`
	Share                                            string `json:"share"` // the one in force: mesh or partitioned
	Sources                                          int    `json:"sources"`
	Exact, Partial, CatchingUp, Approximate, Nothing int    // sources by knowledge.State
	Reading                                          int    `json:"reading"`
	Unread                                           int    `json:"unread"` // sources that nobody is known to read
	Lag                                              uint64 `json:"lag"`    // sequence numbers behind the furthest peers
}

// Status returns the group as this replica sees it.
func (n *Node) Status() Status {
	bus := n.opt.Bus.Status()
	id, what := n.opt.ConfigMismatch()
	aside := n.opt.NotShared()
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.opt.Now()
	n.core.Advance(now)
	s := Status{
		Self: n.opt.Self, Phase: n.core.Phase().String(), Bus: bus,
		Uptime: n.core.Uptime(), Leaving: n.core.Leaving(), Lost: n.lostMembers(now),
	}
	if s.Self.Addr == "" {
		s.Self.Addr = bus.Advertised
	}
	for _, l := range n.core.Logs() {
		s.Logs = append(s.Logs, logState(l))
	}
	s.Stats, s.Memory = n.core.Look(func(log int, v *logs.SourceView) { s.Logs[log].add(v) })
	for _, p := range n.core.Peers() {
		out := n.peer(p, bus.Queues)
		out.Logs = n.core.Compare(p.Member.ID)
		s.Peers = append(s.Peers, out)
	}
	noteNamesakes(s.Peers)
	s.trouble, s.aside = n.memberTrouble(id, what), aside
	s.Health = health(&s)
	return s
}

// Peers returns the other members without what Status says of their logs, and whether this one
// leaves. It looks at no source.
func (n *Node) Peers() (peers []Peer, leaving bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.core.Advance(n.opt.Now())
	for _, p := range n.core.Peers() {
		peers = append(peers, n.peer(p, nil))
	}
	noteNamesakes(peers)
	return peers, n.core.Leaving()
}

// memberTrouble describes what is wrong with the setup of the member id, if it is one of the
// group. n.mu is held.
func (n *Node) memberTrouble(id, what string) string {
	for _, p := range n.core.Peers() {
		if p.Member.ID == id {
			return p.Member.Name + " " + what
		}
	}
	return ""
}

func (n *Node) peer(p core.PeerView, queues []Queue) Peer {
	out := Peer{
		Member: p.Member, State: peerState(p), For: p.For, Met: p.Met, Phase: p.Phase.String(), Leaving: p.Leaving,
		RTT: p.RTT, Unknown: p.Strangers, Protocol: p.Foreign,
	}
	out.Replaced = out.State == "down" && n.replaced[p.Member.ID]
	for i, t := range p.Traffic {
		f := StateFlow{State: stateName(n.core.States()[i]), Traffic: t}
		f.InPerSec, f.OutPerSec = n.rate.of(p.Member.ID, i)
		out.Traffic = append(out.Traffic, f)
	}
	for _, q := range queues {
		if q.Peer == p.Member.ID {
			out.QueueLen, out.Dropped = q.Frames, q.Dropped
		}
	}
	return out
}

// noteNamesakes marks those that are down and whose names others have that are up: they were
// started again, and membership has not given up the processes before.
func noteNamesakes(peers []Peer) {
	for i := range peers {
		if p := &peers[i]; p.State == "down" {
			p.Replaced = p.Replaced || slices.ContainsFunc(peers, func(o Peer) bool { return o.State == "up" && o.Name == p.Name })
		}
	}
}

func stateName(s string) string {
	if s == "" {
		return "heartbeat"
	}
	return s
}

// peerState names what is wrong with a peer, if anything is.
func peerState(p core.PeerView) string {
	switch {
	case p.Up:
		return "up"
	case p.Foreign != 0:
		return "foreign" // it lives and speaks another version of the protocol
	case p.Alive:
		return "unlinked" // heard, but nothing can be sent to it
	case p.Link:
		return "silent" // connected, but not heard
	default:
		return "down"
	}
}

// logState is that of a log without its sources.
func logState(l *logs.Log) LogState {
	s := LogState{Name: l.Name(), Share: group.SharePartitioned.String()}
	if l.Mesh() {
		s.Share = group.ShareMesh.String()
	}
	return s
}

// add counts a source.
func (s *LogState) add(v *logs.SourceView) {
	s.Sources++
	switch v.Knowledge {
	case knowledge.Exact:
		s.Exact++
	case knowledge.Partial:
		s.Partial++
	case knowledge.CatchingUp:
		s.CatchingUp++
	case knowledge.Approximate:
		s.Approximate++
	default:
		s.Nothing++
	}
	if v.Reading {
		s.Reading++
	}
	if v.Reader == "" {
		s.Unread++
	}
	s.Lag += v.Lag
}

// rates samples traffic once a second.
type rates struct {
	at   time.Duration
	last map[string][]group.Traffic
	per  map[string][][2]float64
}

func (r *rates) due(now time.Duration) bool { return r.last == nil || now-r.at >= time.Second }

func (r *rates) sample(now time.Duration, peers []core.PeerView) {
	dt := (now - r.at).Seconds()
	last, per := make(map[string][]group.Traffic, len(peers)), make(map[string][][2]float64, len(peers))
	for _, p := range peers {
		id := p.Member.ID
		last[id] = p.Traffic
		was := r.last[id]
		if was == nil || dt <= 0 {
			continue
		}
		per[id] = make([][2]float64, len(p.Traffic))
		for i, t := range p.Traffic {
			if t.BytesIn >= was[i].BytesIn && t.BytesOut >= was[i].BytesOut { // else it was away, and counts anew
				per[id][i] = [2]float64{float64(t.BytesIn-was[i].BytesIn) / dt, float64(t.BytesOut-was[i].BytesOut) / dt}
			}
		}
	}
	r.at, r.last, r.per = now, last, per
}

func (r *rates) of(id string, state int) (in, out float64) {
	if p := r.per[id]; state < len(p) {
		return p[state][0], p[state][1]
	}
	return 0, 0
}
