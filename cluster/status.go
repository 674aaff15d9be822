package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// Status is this replica's view of the group.
type Status struct {
	Self     Member          `json:"self"`
	Phase    string          `json:"phase"`
	Health   Health          `json:"health"`
	Bus      BusStatus       `json:"bus"`
	Peers    []Peer          `json:"peers"`
	Lost     []Lost          `json:"lost"` // members that vanished without leaving
	Logs     []LogState      `json:"logs"`
	Stats    group.Stats     `json:"-"`
	Memory   group.MemoryUse `json:"held"`
	Uptime   time.Duration
	Leaving  bool   `json:"leaving"`
	mismatch string // configuration mismatch between members
	release  string // a member of another release with which no index is shared
	aside    string // state that is not shared, and why
}

// Peer is this replica's view of another member.
type Peer struct {
	Member
	State    string          `json:"state"` // up, foreign, silent, unlinked, down
	For      time.Duration   `json:"for"`
	Met      bool            `json:"met"` // it was up once
	Phase    string          `json:"phase"`
	Leaving  bool            `json:"leaving"`
	RTT      time.Duration   `json:"rtt"`
	leastRTT time.Duration   // the delay of the link itself in the last seconds
	slow     bool            // that delay exceeds group.MaxRoundTrip
	Clock    ClockDifference `json:"-"`
	Unknown  int             `json:"unknown_states"` // states that only the peer has
	Traffic  []StateFlow     `json:"traffic"`
	Logs     []logs.PeerLogView
	QueueLen int    `json:"queue_frames"`
	Dropped  uint64 `json:"dropped_frames"`
	// Protocol is the protocol version of a foreign member; 0 for others.
	Protocol byte `json:"protocol,omitempty"`
	// Replaced means that it is down and was replaced by another member or by a new process of the
	// same member.
	Replaced bool `json:"replaced,omitempty"`
}

// StateFlow is the traffic of one state with one peer. State is "heartbeat" for traffic that
// belongs to no state.
type StateFlow struct {
	State string `json:"state"`
	group.Traffic
	InPerSec  float64 `json:"in_bytes_per_second"`
	OutPerSec float64 `json:"out_bytes_per_second"`
}

// LogState summarizes this replica's knowledge of a log.
type LogState struct {
	Name                                             string `json:"name"`
	Share                                            string `json:"share"` // current mode: mesh or partitioned
	Sources                                          int    `json:"sources"`
	Exact, Partial, CatchingUp, Approximate, Nothing int    // sources by knowledge.State
	Reading                                          int    `json:"reading"`
	Unread                                           int    `json:"unread"` // sources without a known reader
	Lag                                              uint64 `json:"lag"`    // sequence numbers behind the furthest peers
}

// Status returns this replica's view of the group.
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
	s.mismatch, s.release = n.memberMismatch(id, what)
	s.aside = aside
	s.Health = health(&s)
	return s
}

// Peers returns the other members without the state of their logs, and whether this member is
// leaving. Its cost does not depend on the number of sources.
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

// memberMismatch is mismatch for the member with that ID, or "" if it is not in the group. The caller
// holds n.mu.
func (n *Node) memberMismatch(id, what string) (trouble, release string) {
	for _, p := range n.core.Peers() {
		if p.Member.ID == id {
			return mismatch(p.Member, n.opt.Self, what)
		}
	}
	return "", ""
}

// mismatch returns how a member's configuration differs. release is set instead if the member runs
// another release: releases may differ in the compared values, which an operator cannot change.
func mismatch(m, self Member, what string) (trouble, release string) {
	if m.Version != "" && m.Version != self.Version {
		return "", fmt.Sprintf("%s runs release %s and this replica %s: they share no index until both run the same", m.Name, m.Version, self.Version)
	}
	return m.Name + " " + what, ""
}

func (n *Node) peer(p core.PeerView, queues []Queue) Peer {
	out := Peer{
		Member: p.Member, State: peerState(p), For: p.For, Met: p.Met, Phase: p.Phase.String(), Leaving: p.Leaving,
		RTT: p.RTT, leastRTT: p.Recent, slow: p.Slow, Clock: p.Clock, Unknown: p.UnknownStates, Protocol: p.Foreign,
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

// noteNamesakes marks down members whose name a running member has. They were restarted, and
// membership has not removed the old process yet.
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

// peerState returns the state of a peer.
func peerState(p core.PeerView) string {
	switch {
	case p.Up:
		return "up"
	case p.Foreign != 0:
		return "foreign" // alive, but with another protocol version
	case p.Alive:
		return "unlinked" // its frames arrive, but frames cannot be sent to it
	case p.Link:
		return "silent" // connected, but no frames arrive
	default:
		return "down"
	}
}

// logState returns the state of a log without its sources.
func logState(l *logs.Log) LogState {
	s := LogState{Name: l.Name(), Share: group.SharePartitioned.String()}
	if l.Mesh() {
		s.Share = group.ShareMesh.String()
	}
	return s
}

// add adds a source.
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

// observeEvery is the time between two checks of the group's traffic and members.
const observeEvery = time.Second

func (r *rates) due(now time.Duration) bool { return r.last == nil || now-r.at >= observeEvery }

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
			if t.BytesIn >= was[i].BytesIn && t.BytesOut >= was[i].BytesOut { // otherwise it was gone and restarted its counters
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
