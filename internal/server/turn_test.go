package server

import (
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
)

// TestTurn: members that are up take turns by name; who leaves is last.
func TestTurn(t *testing.T) {
	peer := func(name, state string, leaving bool) cluster.Peer {
		return cluster.Peer{Member: cluster.Member{Name: name}, State: state, Leaving: leaving}
	}
	peers := []cluster.Peer{peer("a", "up", false), peer("b", "silent", false), peer("c", "up", true), peer("z", "up", false)}
	for _, tc := range []struct {
		name    string
		leaving bool
		peers   []cluster.Peer
		want    int
	}{
		{"d", false, nil, 0}, {"d", false, peers, 1}, {"0", false, peers, 0}, {"d", true, peers, 3},
	} {
		if got := turnOf(tc.name, tc.leaving, tc.peers); got != tc.want {
			t.Errorf("%s, leaving %t, of %d peers: turn %d, want %d", tc.name, tc.leaving, len(tc.peers), got, tc.want)
		}
	}
}
