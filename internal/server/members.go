package server

import (
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
)

// ClusterStatus summarizes the group.
type ClusterStatus struct {
	OK         bool   `json:"ok"`    // nothing has to be done
	State      string `json:"state"` // off, joined, joining, leaving, alone, partitioned, degraded, misconfigured
	Line       string `json:"line"`
	Transport  string `json:"transport"`
	Advertised string `json:"advertised,omitempty"`
	Encrypted  bool   `json:"encrypted"`
	Phase      string `json:"phase"` // settling, settled, degraded
	// Fallback describes the routing while this replica shares state with none or only some of the
	// others; "" otherwise.
	Fallback string `json:"fallback,omitempty"`
}

// MemberStatus is this replica's view of one replica.
type MemberStatus struct {
	Name    string  `json:"name"`
	ID      string  `json:"id"`
	Addr    string  `json:"addr"`
	Version string  `json:"version"`
	Zone    string  `json:"zone,omitempty"`
	State   string  `json:"state"` // self, up, silent, unlinked, down
	Phase   string  `json:"phase"`
	RTTMS   float64 `json:"rtt_ms"`
	// ClockAheadS is the time by which its clock is ahead of this replica's, with a possible error of
	// ClockWithinS. It is absent until measured.
	ClockAheadS  *float64 `json:"clock_ahead_s,omitempty"`
	ClockWithinS float64  `json:"clock_within_s,omitempty"`
	InBPS        float64  `json:"in_bytes_per_second"`
	OutBPS       float64  `json:"out_bytes_per_second"`
	Reading      int      `json:"reading"` // number of endpoints whose streams it reads
	Behind       uint64   `json:"behind_batches"`
	Differ       int      `json:"digests_differ"`
	Dropped      uint64   `json:"dropped_frames"`
	Leaving      bool     `json:"leaving,omitempty"`
	ForS         float64  `json:"for_s"` // seconds in this state
	Unshared     int      `json:"unknown_states,omitempty"`
}

// clusterStatus returns the status of the group and its members, this replica first.
func (r *reporter) clusterStatus() (ClusterStatus, []MemberStatus) {
	st := r.Node.Status()
	c := ClusterStatus{
		OK: st.Health.OK, State: st.Health.State, Line: st.Health.Line, Transport: st.Bus.Kind, Advertised: st.Bus.Advertised,
		Encrypted: st.Bus.Encrypted, Phase: st.Phase, Fallback: r.fallback(st.Health.State),
	}
	if !r.Grouped {
		return c, nil
	}
	self := MemberStatus{
		Name: st.Self.Name, ID: st.Self.ID, Addr: st.Self.Addr, Version: st.Self.Version, Zone: st.Self.Zone, State: "self",
		Phase: st.Phase, Leaving: st.Leaving, ForS: st.Uptime.Seconds(),
	}
	for _, l := range st.Logs {
		self.Reading += l.Reading
		self.Behind += l.Lag
	}
	members := []MemberStatus{self}
	for _, p := range st.Peers {
		members = append(members, memberStatus(&p))
	}
	return c, members
}

// rankIn returns this replica's position among the live members of its group.
func rankIn(node *cluster.Node) int {
	peers, leaving := node.Peers()
	return turnOf(node.Self().Name, leaving, peers)
}

func turnOf(name string, leaving bool, peers []cluster.Peer) (turn int) {
	for i := range peers {
		p := &peers[i]
		if p.State == "up" && (leaving || !p.Leaving && p.Name < name) {
			turn++
		}
	}
	return turn
}

// fallback describes this replica's routing if other replicas are missing; "" otherwise.
func (r *reporter) fallback(state string) string {
	whose := "of its own requests"
	switch state {
	case "off", "alone":
	case "partitioned", "degraded", "misconfigured":
		whose = "of the members that it reaches"
	default:
		return ""
	}
	read, all := r.Share.StreamsRead()
	return fmt.Sprintf("reads %d of %d event streams itself, sees the in-flight load %s", read, all, whose)
}

func memberStatus(p *cluster.Peer) MemberStatus {
	m := MemberStatus{
		Name: p.Name, ID: p.ID, Addr: p.Addr, Version: p.Version, Zone: p.Zone, State: p.State, Phase: p.Phase, Leaving: p.Leaving,
		RTTMS: float64(p.RTT) / float64(time.Millisecond), Dropped: p.Dropped, ForS: p.For.Seconds(), Unshared: p.Unknown,
	}
	if p.Clock.Known {
		ahead := p.Clock.Ahead.Seconds()
		m.ClockAheadS, m.ClockWithinS = &ahead, p.Clock.Within.Seconds()
	}
	for _, f := range p.Traffic {
		m.InBPS += f.InPerSec
		m.OutBPS += f.OutPerSec
	}
	for _, l := range p.Logs {
		m.Reading += l.Reading
		m.Behind += l.Behind
		m.Differ += l.Differ
	}
	return m
}
