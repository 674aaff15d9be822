package translate

import (
	"bytes"
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Bounds of the reports that are expected.
const (
	maxExpected   = 64
	expectBytes   = 4 << 10 // of a prompt: more than a first block
	expectBatches = 1 << 12 // after which a report does not come any more
)

// expected is a request that asked its engine to announce what it reuses. The shape of
// such a report is that of a second copy, which counts: only who sent the request knows
// one from the other.
type expected struct {
	root   block.Key
	prompt []byte // the begin of it
	length int    // all of it
	batch  uint64
	groups [maxGroups / 64]uint64 // whose report has come, in the batch under way
	come   bool
	late   bool
}

// Expect tells that a request has been sent whose engine will announce the blocks that
// it reuses of the prompt q, beginning with the first. late says that the engine may hold
// blocks that were never announced here.
func (t *Translator) Expect(q block.Query, late bool) {
	if len(t.expected) == maxExpected {
		t.expected = slices.Delete(t.expected, 0, 1)
	}
	t.expected = append(t.expected, expected{
		root: q.Root, prompt: bytes.Clone(q.Bytes[:min(len(q.Bytes), expectBytes)]), length: len(q.Bytes), batch: t.batches, late: late,
	})
}

// awaits reports whether a store from a root may be a report that is expected.
func (t *Translator) awaits(root bool) bool { return root && len(t.expected) > 0 }

// again reports whether a store from the root on, of what t.text says, is a report that
// is expected: it begins with a block that is held, and is what a prompt begins with,
// not all of it, since some of each prompt is computed. That holds once for each cache
// group of one batch. A prompt of which nothing is held is stored instead.
func (t *Translator) again(e *decode.Event, root block.Key, held bool) bool {
	g := groupOf(e)
	for i := range t.expected {
		x := &t.expected[i]
		word, bit := &x.groups[g/64], uint64(1)<<(g%64)
		n := min(len(t.text), len(x.prompt))
		if x.root != root || *word&bit != 0 || len(t.text) > x.length || !bytes.Equal(t.text[:n], x.prompt[:n]) {
			continue
		}
		if held && len(t.text) == x.length {
			continue // a copy
		}
		*word, x.come = *word|bit, true
		// Of what is known in part each block counts once at most: then a removal is
		// never outlived.
		return held || x.late
	}
	return false
}

// settleExpected forgets reports that have come with the batch, or will not come.
func (t *Translator) settleExpected() {
	t.batches++
	if len(t.expected) > 0 {
		t.expected = slices.DeleteFunc(t.expected, func(x expected) bool {
			if x.come {
				t.stats.Answered++
			}
			return x.come || t.batches-x.batch > expectBatches
		})
	}
}
