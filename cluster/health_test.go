package cluster

import (
	"strings"
	"testing"
	"time"
)

// The reported state of unreachable members depends on whether they may have crashed.
func TestPartitionOrDeath(t *testing.T) {
	up := func(name string) Peer {
		return Peer{Member: Member{Name: name}, State: "up", Met: true, For: time.Hour}
	}
	down := func(name, state string, since time.Duration) Peer {
		return Peer{Member: Member{Name: name}, State: state, Met: true, For: since}
	}
	lost := func(name string, since time.Duration) Lost {
		return Lost{Member: Member{Name: name}, For: since}
	}
	never := down("d", "down", 3*time.Second)
	never.Met = false
	heard := lost("d", time.Minute)
	heard.Responsive = true
	for what, c := range map[string]struct {
		peers []Peer
		lost  []Lost
		state string
		line  string
	}{
		"nothing":                      {[]Peer{up("b"), up("c")}, nil, "joined", "2 other members, all reachable, digests equal"},
		"a moment":                     {[]Peer{up("b"), down("c", "down", time.Second)}, nil, "joined", "all reachable"},
		"the only one, for a moment":   {[]Peer{down("b", "down", time.Second)}, nil, "degraded", "no other member answers right now (1 other member expected)"},
		"one of three died":            {[]Peer{up("b")}, []Lost{lost("c", 40*time.Second)}, "joined", "1 other member reachable, digests equal; 1 lost 40s ago (dead or cut off): c"},
		"two of five died":             {[]Peer{up("b"), up("c")}, []Lost{lost("d", time.Minute), lost("e", 5*time.Second)}, "joined", "2 lost, the last 5s ago (dead or cut off): d, e"},
		"one is about to be given up":  {[]Peer{up("b"), up("c"), down("d", "down", 3*time.Second)}, nil, "joined", "1 not answering: d (down for 3s)"},
		"one of two":                   {nil, []Lost{lost("b", time.Minute)}, "partitioned", "b (vanished 1m0s ago without leaving: dead or cut off)"},
		"half of four":                 {[]Peer{up("b")}, []Lost{lost("c", time.Minute), lost("d", time.Minute)}, "partitioned", "2 of 3 other members cannot be reached: c ("},
		"half of four, still listed":   {[]Peer{up("b"), down("c", "down", 2*time.Second), down("d", "down", 2*time.Second)}, nil, "partitioned", "d (down for 2s)"},
		"half of four, as seen of one": {[]Peer{up("b"), down("c", "down", 2*time.Second)}, []Lost{lost("d", time.Second)}, "partitioned", "c (down for 2s), d ("},
		"one of two, started again":    {[]Peer{up("b"), down("b", "down", 8*time.Second)}, nil, "joined", "joined: 1 other member, all reachable, digests equal"},
		"it lives, says membership":    {[]Peer{up("b"), up("c"), down("d", "down", 6*time.Second)}, nil, "partitioned", "1 of 3 other members"},
		"it sends":                     {[]Peer{up("b"), up("c"), down("d", "unlinked", 3*time.Second)}, nil, "partitioned", "d (unlinked for 3s)"},
		"it was never reached":         {[]Peer{up("b"), up("c"), never}, nil, "partitioned", "d (down for 3s)"},
		"given up, and it sends":       {[]Peer{up("b"), up("c")}, []Lost{heard}, "partitioned", "d (given up 1m0s ago and still heard: cut off)"},
	} {
		noteNamesakes(c.peers)
		h := health(&Status{Bus: BusStatus{Kind: "gossip"}, Phase: Settled.String(), Peers: c.peers, Lost: c.lost})
		if h.State != c.state || h.OK != (c.state == "joined") || !strings.Contains(h.Line, c.line) {
			t.Errorf("%s: health() = %+v, want %s with %q", what, h, c.state, c.line)
		}
	}
}

// A problem between members is reported in one line, except by a leaving member.
func TestGroupMismatchIsReported(t *testing.T) {
	f := func(s Status, state, line string) {
		t.Helper()
		s.Bus.Kind, s.Phase = "gossip", Settled.String()
		if h := health(&s); h.State != state || h.Line != line || h.OK != (state == "joined" || state == "leaving" || state == "alone" && !s.Bus.Joining) {
			t.Errorf("health() = %+v, want %s with %q", h, state, line)
		}
	}
	peers := []Peer{{Member: Member{Name: "b"}, State: "up", Met: true}}
	f(Status{Peers: peers, trouble: "b has another secret"}, "misconfigured", "misconfigured: b has another secret")
	f(Status{Peers: peers, release: "b runs release 1 and this replica 2"}, "degraded", "degraded: b runs release 1 and this replica 2")
	f(Status{Peers: peers, aside: "1 event stream is not shared: e1/0 because it has no replay port"}, "joined",
		"joined: 1 other member, all reachable, digests equal; 1 event stream is not shared: e1/0 because it has no replay port")
	twins := []Peer{peers[0], {Member: Member{Name: "a"}, State: "down", Met: true, For: 3 * time.Second, Replaced: true}, peers[0], {Member: Member{Name: "a"}, State: "up", Met: true}}
	f(Status{Self: Member{Name: "a"}, Peers: twins[:2]}, "joined", "joined: 1 other member, all reachable, digests equal")
	f(Status{Self: Member{Name: "a"}, Peers: twins[2:]}, "joined",
		"joined: 2 other members, all reachable, digests equal; several members are named a: set a unique name for each")
	f(Status{Self: Member{Name: "a"}, Peers: []Peer{peers[0], peers[0]}}, "joined",
		"joined: 2 other members, all reachable, digests equal; several members are named b: set a unique name for each")
	f(Status{Peers: peers, Bus: BusStatus{Problem: "b says: context canceled"}, Leaving: true}, "leaving", "leaving: notifying other members")
	f(Status{Bus: BusStatus{Joining: true, JoinError: "b: EOF"}}, "alone",
		"alone: no other member found; last try: b: EOF (its label or key may differ)")
	f(Status{Bus: BusStatus{Refused: map[string]uint64{"label": 3}}}, "alone",
		"alone: no other member is configured or has joined; 3 rejected because of their label: check that it is the same everywhere")
}

// A difference between members of different releases is reported as such, and not as an operator's
// mistake.
func TestMismatchOfReleases(t *testing.T) {
	self := Member{Name: "a", Version: "v2"}
	for version, want := range map[string][2]string{
		"v2": {"b has another secret", ""},
		"":   {"b has another secret", ""},
		"v1": {"", "b runs release v1 and this replica v2: they share no index until both run the same"},
	} {
		trouble, release := mismatch(Member{Name: "b", Version: version}, self, "has another secret")
		if trouble != want[0] || release != want[1] {
			t.Errorf("release %q: %q and %q, want %q", version, trouble, release, want)
		}
	}
}
