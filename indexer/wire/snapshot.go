package wire

import (
	"errors"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// ErrSnapshotSize means that a source does not fit into a snapshot of the allowed size.
var ErrSnapshotSize = errors.New("indexer: snapshot over its limit")

// SnapshotLimits bounds a snapshot, in bytes.
type SnapshotLimits struct {
	Page  int // of one page; exceeded only if most blocks of a long chain are not held
	Total int // of all pages
}

// SnapshotBlockBytes is the minimum size of a snapshot's block in bytes.
const SnapshotBlockBytes = minBlockSize

// The longest encodings of an operation's head and of a block.
const (
	maxHeadSize  = 1 + 1 + 5 + 16 + 5
	maxBlockSize = 16 + 5 + 1 + 5
	pagerBlocks  = 256
)

// Snapshot writes a source's blocks at one moment into pages, each an encoded Delta, while others
// write to the index. It must be used by one goroutine at a time.
type Snapshot struct {
	view   *indexer.View
	limits SnapshotLimits
	most   int // blocks of an operation
	part   block.Delta
	more   bool
	chain  deltaChain
	page   []byte
	pages  [][]byte
	total  int
}

// OpenSnapshot begins a snapshot of a source. Its duration does not depend on the source's size.
// Close must follow soon: until then no memory of removed blocks is reused.
func OpenSnapshot(x *indexer.Index, name block.Source, limits SnapshotLimits) *Snapshot {
	return &Snapshot{
		view: x.View(name, limits.Total/minBlockSize), limits: limits, more: true,
		most: min(max(limits.Page/maxBlockSize/4, 1), pagerBlocks),
	}
}

// Next returns the next page; nil after the last.
func (p *Snapshot) Next() ([]byte, error) {
	for len(p.pages) == 0 && p.more {
		var err error
		if p.more, err = p.view.Next(&p.part, p.most); err != nil {
			return nil, ErrSnapshotSize
		}
		for i := range p.part.Ops {
			p.add(&p.part.Ops[i])
		}
		if p.total > p.limits.Total {
			return nil, ErrSnapshotSize
		}
		if !p.more {
			p.page = append([]byte(nil), p.page...) // exact size
			p.turn()
		}
	}
	if len(p.pages) == 0 {
		return nil, nil
	}
	page := p.pages[0]
	p.pages = p.pages[1:]
	return page, nil
}

// Close ends the snapshot. It may be called twice.
func (p *Snapshot) Close() {
	p.view.Close()
	p.more, p.page, p.pages = false, nil, nil
}

// add writes an operation.
func (p *Snapshot) add(op *block.Op) {
	var blocks []block.StoredBlock
	var hashes []block.EngineHash
	if op.Kind == block.OpStore {
		blocks = p.part.Blocks[op.First : op.First+op.N]
	} else {
		hashes = p.part.Hashes[op.First : op.First+op.N]
	}
	size := maxHeadSize + len(blocks)*maxBlockSize + len(hashes)*8
	if len(p.page) == 0 || len(p.page)+size > p.limits.Page {
		p.turn()
		p.page = append(make([]byte, 0, max(p.limits.Page, size+1)), deltaVersion)
		p.chain = deltaChain{}
	}
	before := len(p.page)
	if op.Kind == block.OpStore {
		p.page = appendHead(p.page, op, p.chain.again(op))
		p.page = appendBlocks(p.page, blocks)
		p.chain.after(op, blocks)
	} else {
		p.page = appendHashes(appendHead(p.page, op, false), hashes)
	}
	p.total += len(p.page) - before
}

// turn ends the page.
func (p *Snapshot) turn() {
	if len(p.page) > 0 {
		p.pages = append(p.pages, p.page)
	}
}
