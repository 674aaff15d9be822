package logs

import (
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// counted is a store whose stages count how they ended.
type counted struct {
	nothing
	open, discarded int
}

type countedStage struct{ of *counted }

func (c *counted) Stage(string, uint64) (Stage, error) { c.open++; return countedStage{c}, nil }

func (countedStage) Page([]byte) error { return nil }
func (countedStage) Commit() error     { return nil }
func (g countedStage) Discard()        { g.of.discarded++ }

// A load that ends while pages are added to its stage leaves the stage to whoever
// adds them, and does not look at it. The race detector is what finds otherwise.
func TestLoadEndsWhilePagesAreAdded(t *testing.T) {
	store := &counted{}
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, store, LogOptions{})
	l.SetSources([]string{"one"})
	p := &group.Peer{Member: group.Member{ID: "b", Boot: 2}}
	l.AddPeer(p)
	g.Peers = append(g.Peers, p)
	s := l.sources["one"]
	ld := &load{p: p, snapshot: true, snap: Position{Inc: 1, Next: 1}, pages: [][]byte{{1}, {2}}, asked: 2, working: true}
	s.load, l.loading = ld, 1
	added := make(chan error)
	go func() { added <- l.addPages(s.name, ld, ld.pages[:1]) }()
	l.PeerDown(p)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	if l.filled(s, ld, 1); store.open != 1 || store.discarded != 1 || s.load != nil || l.loading != 0 {
		t.Errorf("%d stages, %d of them discarded, %d loads", store.open, store.discarded, l.loading)
	}
}
