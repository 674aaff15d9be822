package logs

import (
	"fmt"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// alike returns two source names with the same nick.
func alike(t *testing.T) (a, b string) {
	t.Helper()
	seen := map[uint32]string{}
	for i := range 1 << 20 {
		name := fmt.Sprintf("e%d", i)
		h := uint32(group.Hash(name))
		if other, ok := seen[h]; ok {
			return other, name
		}
		seen[h] = name
	}
	t.Fatal("found no two names with the same nick")
	return "", ""
}

func TestNicks(t *testing.T) {
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{})
	p := &group.Peer{Member: group.Member{ID: "b", Boot: 2}, Minor: group.MinorNicks}
	a, b := alike(t)
	l.SetSources([]string{"one", a, b})
	l.AddPeer(p)
	g.Peers = append(g.Peers, p)
	push := func(name string, inc uint64) group.DeltaRun {
		s := l.sources[name]
		s.pushInc = inc
		return l.deltasFor(nil, s).DeltaRun
	}
	claim := func(name string, inc uint64) { l.of(p).claims[l.sources[name].slot].pos.Inc = inc }
	if g := push("one", 5); g.Inc != 5 || string(g.Source) != "one" {
		t.Errorf("to a peer without a claim: %q %d", g.Source, g.Inc)
	}
	claim("one", 5)
	nicked := push("one", 5)
	if nicked.Inc != 0 || len(nicked.Source) != nickLen {
		t.Errorf("to a peer in the incarnation: %q %d", nicked.Source, nicked.Inc)
	}
	if g := push("one", 6); g.Inc != 6 {
		t.Errorf("to a peer in another incarnation: %q %d", g.Source, g.Inc)
	}
	p.Minor--
	if g := push("one", 5); g.Inc != 5 {
		t.Errorf("to a peer of an older minor version: %q %d", g.Source, g.Inc)
	}
	p.Minor++
	claim(a, 5)
	if g := push(a, 5); g.Inc != 5 {
		t.Errorf("source with a colliding nick: %q %d", g.Source, g.Inc)
	}

	for name, c := range map[string]struct {
		inc  uint64 // this member's incarnation
		in   group.DeltaRun
		want bool
	}{
		"nick":                   {5, nicked, true},
		"of another incarnation": {6, nicked, false},
		"of nothing known":       {0, nicked, false},
		"unlike any":             {5, group.DeltaRun{Source: []byte("\x00abcdefg")}, false},
		"of two":                 {5, group.DeltaRun{Source: l.sources[a].nick(5)}, false},
		"too short":              {5, group.DeltaRun{Source: nicked.Source[:7]}, false},
		"name":                   {5, group.DeltaRun{Source: []byte("one"), Inc: 7}, true},
		"name without one":       {5, group.DeltaRun{Source: []byte("one")}, false},
	} {
		for _, s := range l.order {
			s.pos.Inc = c.inc
		}
		s := l.table.Load().find(&c.in)
		if s != nil && !s.completes(&c.in) {
			s = nil
		}
		if (s != nil) != c.want || s != nil && (s.name != "one" || c.in.Inc == 0) {
			t.Errorf("%s: %v, incarnation %d", name, s, c.in.Inc)
		}
	}
}
