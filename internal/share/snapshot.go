package share

import (
	"errors"
	"fmt"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
	"github.com/grapevine-epp/grapevine/internal/share/plan"
)

// maxSnapshot is the maximum size of a snapshot in bytes, the default of
// cluster.Tuning.SnapshotBytes. It holds the maximum number of blocks per source in chains of ten
// or more.
const maxSnapshot = 384 << 20

// Snapshot implements cluster.LogStore.
func (st store) Snapshot(name string, pageSize int) (cluster.Dump, error) {
	s := st.find(name)
	if s == nil {
		return nil, errNotShared
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != plan.Shared {
		return nil, errNotShared
	}
	return &indexDump{
		st: st, name: name, first: [][]byte{s.head.append(nil), s.tails.AppendPage(nil)},
		view: wire.OpenSnapshot(s.x, s.src, wire.SnapshotLimits{Page: pageSize, Total: maxSnapshot}),
	}, nil
}

// indexDump is a source's content at one moment: its head, its tails, then its blocks.
type indexDump struct {
	st    store
	name  string
	first [][]byte // pages before the blocks
	view  *wire.Snapshot
}

// Next implements cluster.Dump.
func (d *indexDump) Next() ([]byte, error) {
	if len(d.first) > 0 {
		p := d.first[0]
		d.first = d.first[1:]
		return p, nil
	}
	page, err := d.view.Next()
	if errors.Is(err, wire.ErrSnapshotSize) {
		err = fmt.Errorf("%w: %w", cluster.ErrTooLarge, err)
	}
	if err != nil {
		d.st.share.o.Log.Warn("snapshot of a source failed: other replicas get its state when the engine holds fewer blocks or restarts", "source", d.name, "error", err)
	}
	return page, err
}

// Close implements cluster.Dump.
func (d *indexDump) Close() { d.view.Close() }

// Stage implements cluster.LogStore. Until the commit, requests match the current content.
func (st store) Stage(name string, bytes uint64) (cluster.Stage, error) {
	s := st.find(name)
	if s == nil {
		return nil, errNotShared
	}
	return &indexStage{s: s, blocks: s.x.Stage(s.src, int(bytes/wire.SnapshotBlockBytes))}, nil
}

// indexStage is new content of a source. One decoded page is in memory at a time.
type indexStage struct {
	s      *source
	blocks *indexer.Stage
	page   block.Delta
	head   shareHead
	tails  wire.Tails
	headed bool
}

// Page implements cluster.Stage.
func (g *indexStage) Page(p []byte) (err error) {
	if !g.headed {
		g.headed = true
		g.head, err = readHead(p)
		return err
	}
	if err := wire.DecodeDelta(p, &g.page); err != nil {
		return err
	}
	if g.tails.Take(&g.page) {
		return nil
	}
	if n := g.blocks.Apply(&g.page); n.Refused+n.UnknownParent > 0 {
		g.head.mayBeStale = true
	}
	return nil
}

// Digest implements cluster.Stage.
func (g *indexStage) Digest() cluster.Digest {
	n, xor := g.blocks.Digest()
	return cluster.Digest{Count: n, Xor: xor}
}

// Commit implements cluster.Stage.
func (g *indexStage) Commit() error {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if g.s.mode != plan.Shared {
		return errNotShared
	}
	g.blocks.Commit()
	g.s.head, g.s.tails = g.head, g.tails
	return nil
}

// Discard implements cluster.Stage.
func (g *indexStage) Discard() { g.blocks.Discard() }
