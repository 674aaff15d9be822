package cluster

import (
	"os"
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

// TestWordsNeedFacts: each state word has facts that it needs. Without any one of them, health reports
// another word, or another reason. docs/green-means.md lists the same facts.
func TestWordsNeedFacts(t *testing.T) {
	page, err := os.ReadFile("../docs/green-means.md")
	if err != nil {
		t.Fatal(err)
	}
	type fact struct {
		text   string // as on the page
		remove func(*Status)
	}
	peer := func(name, state string) Peer {
		return Peer{Member: Member{Name: name}, State: state, Met: true, For: time.Hour, RTT: time.Millisecond}
	}
	for _, tc := range []struct {
		line  string // its beginning
		with  func(*Status)
		facts []fact
	}{
		{"joined: ", func(*Status) {}, []fact{
			{"a member is reachable", func(s *Status) { s.Peers[0].State, s.Peers[0].For = "down", time.Second; s.Peers = s.Peers[:1] }},
			{"all listed members are", func(s *Status) { s.Peers[1].State = "silent" }},
			{"it has caught up", func(s *Status) { s.Phase = Degraded.String() }},
			{"links are within the limit", func(s *Status) { s.Peers[1].slow = true }},
			{"no setting differs", func(s *Status) { s.mismatch = "b has another secret" }},
		}},
		{"partitioned: ", func(s *Status) { s.Peers[1].State, s.Peers[1].For = "silent", 3*time.Second }, []fact{
			{"a member is not reachable", func(s *Status) { s.Peers[1].State = "up" }},
			{"for two seconds", func(s *Status) { s.Peers[1].For = time.Second }},
			{"evidence that it lives", func(s *Status) { s.Peers[1].State = "down" }},
		}},
		{"partitioned: NATS", func(s *Status) { s.Bus.Disconnected, s.Bus.Problem = true, "NATS is not reachable" }, []fact{
			{"no connection to NATS", func(s *Status) { s.Bus.Disconnected = false }},
		}},
		{"misconfigured: ", func(s *Status) { s.mismatch = "b has another secret" }, []fact{
			{"a setting differs", func(s *Status) { s.mismatch = "" }},
			{"in members of one release", func(s *Status) { s.mismatch, s.release = "", "b runs release 1 and this replica 2" }},
		}},
		{"misconfigured: advertised", func(s *Status) { s.Bus.Problem = "advertised address 10.1.2.3:7946 cannot be reached" }, []fact{
			{"members report that they cannot reach the address, and none ever did", func(s *Status) { s.Bus.Problem = "" }},
		}},
		{"degraded: links", func(s *Status) { s.Peers[1].slow = true }, []fact{
			{"a measured round trip over the limit", func(s *Status) { s.Peers[1].slow = false }},
			{"of a reachable member", func(s *Status) { s.Peers = s.Peers[:1] }},
		}},
		{"degraded: continued", func(s *Status) { s.Phase = Degraded.String() }, []fact{
			{"it did not catch up in time", func(s *Status) { s.Phase = Settled.String() }},
			{"another member is listed", func(s *Status) { s.Peers = nil }},
		}},
		{"degraded: 1 of 2 other members use an incompatible", func(s *Status) { s.Peers[1].State, s.Peers[1].Protocol = "foreign", 2 }, []fact{
			{"a frame with another protocol version arrived", func(s *Status) { s.Peers[1].State = "up" }},
		}},
		{"degraded: no other", func(s *Status) { s.Peers = s.Peers[:1]; s.Peers[0].State, s.Peers[0].For = "down", time.Second }, []fact{
			{"no member answers", func(s *Status) { s.Peers[0].State = "up" }},
			{"for less than two seconds", func(s *Status) { s.Peers[0].For = 3 * time.Second }},
		}},
		{"joining: ", func(s *Status) { s.Phase = Settling.String() }, []fact{
			{"it has not caught up", func(s *Status) { s.Phase = Settled.String() }},
			{"the time limit has not passed", func(s *Status) { s.Phase = Degraded.String() }},
		}},
		{"alone: no other member found", func(s *Status) { s.Peers, s.Bus.Joining = nil, true }, []fact{
			{"no member is listed", func(s *Status) { s.Peers = []Peer{peer("b", "up")} }},
			{"none was lost", func(s *Status) { s.Lost = []Lost{{Member: Member{Name: "b"}, For: time.Second}} }},
			{"the configuration names members", func(s *Status) { s.Bus.Joining = false }},
		}},
		{"leaving: ", func(s *Status) { s.Leaving = true }, []fact{
			{"it got SIGTERM", func(s *Status) { s.Leaving = false }},
		}},
	} {
		status := func() *Status {
			s := &Status{Bus: BusStatus{Kind: "gossip"}, Phase: Settled.String(), Peers: []Peer{peer("b", "up"), peer("c", "up")}}
			tc.with(s)
			return s
		}
		if h := health(status()); !strings.HasPrefix(h.Line, tc.line) {
			t.Errorf("health() = %q, want %q", h.Line, tc.line)
		}
		for _, f := range tc.facts {
			s := status()
			f.remove(s)
			if h := health(s); strings.HasPrefix(h.Line, tc.line) {
				t.Errorf("health() = %q although it is not true that %s", h.Line, f.text)
			}
			if !strings.Contains(string(page), f.text) {
				t.Errorf("docs/green-means.md does not have the fact %q of %q", f.text, tc.line)
			}
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
	f(Status{Peers: peers, mismatch: "b has another secret"}, "misconfigured", "misconfigured: b has another secret")
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
