package prefix

import (
	"slices"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// alignBlocks is the number of blocks before the end of a run that are checked, and alignEnds the
// number of distinct run ends per prompt. Each check costs some microseconds. At further ends only
// suspect blocks are checked.
const (
	alignBlocks = 8
	alignEnds   = 8
)

// checkedEnd is the number of blocks to remove from runs of that many blocks ending at that byte.
type checkedEnd struct{ at, blocks, drop int32 }

// trimUnsafe removes the last blocks of runs that an engine will not find, because it tokenizes the
// whole prompt. These are blocks that end inside a token of the request, and blocks with generated
// tokens that differ from the encoding of their text.
func (m *Matcher) trimUnsafe(r *request.Request, s *scratch, q block.Query) {
	if m.o.Models == nil {
		return
	}
	p := m.o.Models.Model(r.Target)
	if p == nil {
		return
	}
	if q.Tokens != nil {
		return // runs are made of these tokens
	}
	s.ends, s.checked = s.ends[:0], s.checked[:0]
	for k := range s.found {
		run := &s.found[k]
		if run.Blocks == 0 {
			continue
		}
		at := slices.IndexFunc(s.checked, func(c checkedEnd) bool { return c.at == run.Bytes && c.blocks == run.Blocks })
		if at < 0 {
			doubtful := run.Cut || !p.IsTokenBoundary(q.Bytes, int(run.Bytes))
			if len(s.checked) >= alignEnds && !doubtful {
				continue
			}
			at = len(s.checked)
			s.checked = append(s.checked, checkedEnd{run.Bytes, run.Blocks, m.misaligned(p, s, q, run)})
		}
		drop := s.checked[at].drop
		if drop <= 0 || !m.findEnds(s, q, run) {
			continue
		}
		if end := int(run.Blocks - drop); run.Ruled {
			// One byte more, since a run ends before its prompt does.
			m.o.Index.Match(block.Query{Root: q.Root, Bytes: q.Bytes[:s.ends[end]+1]}, s.among[k:k+1], s.found[k:k+1])
			continue
		}
		shorten(run, drop, s.ends)
	}
}

// findEnds sets s.ends to the block ends of a run, which depend on the engine's block size. It
// reports whether the index still has them.
func (m *Matcher) findEnds(s *scratch, q block.Query, run *block.Run) bool {
	n := int(run.Blocks)
	if n >= len(s.ends) || s.ends[n] != run.Bytes {
		s.ends = m.o.Index.BlockEnds(q, *run, append(s.ends[:0], 0))
	}
	return n < len(s.ends)
}

// misaligned returns how many of a run's last blocks do not consist of the prompt's own tokens.
func (m *Matcher) misaligned(p *prompt.Model, s *scratch, q block.Query, run *block.Run) int32 {
	n := int(run.Blocks)
	if !m.findEnds(s, q, run) {
		return 0
	}
	from := max(0, n-alignBlocks)
	after := block.BehindMedia(q.Bytes[:run.Bytes])
	if after == 0 || int(s.ends[from]) > after {
		return int32(n - from - p.Aligned(q.Bytes, s.ends[from:n+1], int(run.Total()/run.Blocks)))
	}
	// The token count of a medium is not visible in the text: the block in which it ends is checked
	// at its own end, and later blocks as usual.
	for from <= n && int(s.ends[from]) <= after {
		from++
	}
	if from > n {
		return 0
	}
	text, ends := q.Bytes[after:], make([]int32, 0, alignBlocks+1)
	for _, end := range s.ends[from : n+1] {
		ends = append(ends, end-int32(after))
	}
	if !p.BoundarySafe(text, int(ends[0])) {
		return int32(n - from + 1)
	}
	return int32(n - from - p.Aligned(text, ends, int(run.Total()/run.Blocks)))
}

// shorten removes drop blocks from the end of a run.
func shorten(run *block.Run, drop int32, ends []int32) {
	if drop <= 0 || int(run.Blocks) >= len(ends) {
		return
	}
	tokens := run.Total() / run.Blocks * drop
	run.Blocks -= drop
	run.Bytes = ends[run.Blocks]
	for t := len(run.Tokens) - 1; t >= 0 && tokens > 0; t-- {
		n := min(tokens, run.Tokens[t])
		run.Tokens[t] -= n
		tokens -= n
	}
}
