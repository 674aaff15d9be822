package share

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/wire"
)

// A source that does not fit in a snapshot is reported as too large, so that members without it can
// report the reason.
func TestSnapshotOverItsLimit(t *testing.T) {
	x, src := indexer.New(indexer.Options{}), block.Source{Endpoint: 1}
	d := block.Delta{Ops: []block.Op{{Kind: block.OpStore, Root: true, From: 1, N: 100}}}
	for k := range 100 {
		d.Blocks = append(d.Blocks, block.StoredBlock{Hash: block.EngineHash(k + 1), Key: block.Key(k + 1), Bytes: 60, Tokens: 16})
	}
	x.Apply(src, &d)
	share := &Index{o: IndexOptions{Log: slog.New(slog.DiscardHandler)}}
	dump := &indexDump{st: store{share}, name: "e/0", view: wire.OpenSnapshot(x, src, wire.SnapshotLimits{Page: 1000, Total: 1000})}
	defer dump.Close()
	if page, err := dump.Next(); !errors.Is(err, cluster.ErrTooLarge) {
		t.Errorf("Next() = %d bytes, %v", len(page), err)
	}
}
