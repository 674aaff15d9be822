package logs

import (
	"runtime"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// counted is a store that counts how its stages end.
type counted struct {
	nothing
	open, discarded int
}

type countedStage struct{ of *counted }

func (c *counted) Stage(string, uint64) (Stage, error) { c.open++; return countedStage{c}, nil }

func (countedStage) Page([]byte) error { return nil }
func (countedStage) Commit() error     { return nil }
func (g countedStage) Discard()        { g.of.discarded++ }

// A load that ends while pages are added leaves the stage to the goroutine that adds them and does
// not touch it. Otherwise the race detector fails this test.
func TestLoadEndsWhilePagesAreAdded(t *testing.T) {
	store := &counted{}
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, store, LogOptions{})
	l.SetSources([]string{"one"})
	p := &group.Peer{Member: group.Member{ID: "b", Boot: 2}}
	l.AddPeer(p)
	g.Peers = append(g.Peers, p)
	s := l.sources["one"]
	ld := &load{p: p, snapshot: true, snap: Position{Inc: 1, Next: 1}, count: 2, asked: 2, working: true}
	s.load, l.loading = ld, 1
	added := make(chan error)
	go func() { added <- l.addPages(s.name, ld, [][]byte{{1}}) }()
	l.PeerDown(p)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	if l.filled(s, ld, 1); store.open != 1 || store.discarded != 1 || s.load != nil || l.loading != 0 {
		t.Errorf("%d stages, %d of them discarded, %d loads", store.open, store.discarded, l.loading)
	}
}

// An announced snapshot allocates no memory before its pages arrive, for any announced size.
func TestAnnouncedSnapshot(t *testing.T) {
	g := group.New(group.Options{Self: group.Member{ID: "a", Boot: 1}})
	l := NewSet(g).New("index", 1, &counted{}, LogOptions{})
	l.SetSources([]string{"one"})
	p := &group.Peer{Member: group.Member{ID: "b", Boot: 2}, Traffic: make([]group.Traffic, 2)}
	l.AddPeer(p)
	g.Peers = append(g.Peers, p)
	s := l.sources["one"]
	load := func(m *group.PageReply) (allocated uint64, taken bool) {
		s.load, l.loading = &load{p: p, snapshot: true}, 1
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l.takePage(s, m)
		runtime.ReadMemStats(&after)
		taken = s.load != nil
		l.endLoad(s)
		return after.TotalAlloc - before.TotalAlloc, taken
	}
	m := group.PageReply{Snap: Position{Inc: 1, Next: 1}, Pages: maxPages, Bytes: uint64(g.Opt.SnapshotBytes), Payload: []byte("p")}
	if n, taken := load(&m); !taken || n > 32<<10 {
		t.Errorf("%d bytes allocated for one page of an announced snapshot of %d pages and %d bytes (accepted: %v)", n, m.Pages, m.Bytes, taken)
	}
	for _, change := range []func(*group.PageReply){
		func(m *group.PageReply) { m.Pages++ },
		func(m *group.PageReply) { m.Bytes++ },
		func(m *group.PageReply) { m.Bytes = 0 },
		func(m *group.PageReply) { m.Page = 1 },
	} {
		wrong := m
		change(&wrong)
		if n, taken := load(&wrong); taken || n > 32<<10 {
			t.Errorf("firstPage accepted %+v (%v), %d bytes allocated", wrong, taken, n)
		}
	}
}
