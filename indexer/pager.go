package indexer

// pager encodes operations that store blocks into pages, each an encoded Delta
// of its own.
type pager struct {
	limits SnapshotLimits
	most   int // blocks of an operation that can be divided
	op     Op
	blocks []StoredBlock
	chain  deltaChain
	page   []byte
	pages  [][]byte
	total  int
	failed bool
}

// SnapshotBlockBytes is the least that a block of a snapshot takes, in bytes.
const SnapshotBlockBytes = minBlockSize

// The longest encodings of an operation's head and of a block.
const (
	maxHeadSize  = 1 + 1 + 5 + 16 + 5
	maxBlockSize = 16 + 5 + 1 + 5
	pagerBlocks  = 256
)

func newPager(limits SnapshotLimits) pager {
	return pager{limits: limits, most: min(max(limits.Page/maxBlockSize/4, 1), pagerBlocks)}
}

// takes tells whether the open operation can go on with a block of op's kind.
func (p *pager) takes(op *Op) bool {
	return len(p.blocks) < p.most && p.op.Tier == op.Tier && p.op.Group == op.Group
}

// begin starts an operation.
func (p *pager) begin(op Op) {
	p.close()
	p.op = op
}

func (p *pager) add(b StoredBlock) {
	p.blocks = append(p.blocks, b)
	p.failed = p.failed || p.total+len(p.blocks)*minBlockSize > p.limits.Total
}

// close writes the open operation.
func (p *pager) close() {
	if len(p.blocks) == 0 {
		return
	}
	size := maxHeadSize + len(p.blocks)*maxBlockSize
	if len(p.page) == 0 || len(p.page)+size > p.limits.Page {
		p.turn()
		p.page = append(make([]byte, 0, max(p.limits.Page, size+1)), deltaVersion)
		p.chain = deltaChain{}
	}
	p.op.N = uint32(len(p.blocks))
	before := len(p.page)
	p.page = appendHead(p.page, &p.op, p.chain.again(&p.op))
	p.page = appendBlocks(p.page, p.blocks)
	p.chain.after(&p.op, p.blocks)
	p.total += len(p.page) - before
	p.blocks = p.blocks[:0]
}

// turn ends the page.
func (p *pager) turn() {
	if len(p.page) > 0 {
		p.pages = append(p.pages, p.page)
	}
}

// finish ends the last page.
func (p *pager) finish() error {
	p.close()
	if p.failed || p.total > p.limits.Total {
		return ErrSnapshotSize
	}
	p.page = append([]byte(nil), p.page...) // of its own size
	p.turn()
	return nil
}
