package translate

import (
	"bytes"
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/indexer/block"
)

// Limits of expected reports.
const (
	maxExpected   = 64
	expectBytes   = 4 << 10 // bytes of a prompt, more than a first block
	expectBatches = 1 << 12 // after which a report is no longer expected
)

// expected is a request that asked its engine to report reused blocks. The report has the form of
// an additional copy; only the sender of the request can distinguish the two.
type expected struct {
	root   block.Key
	prompt []byte // its beginning
	length int    // its total length
	batch  uint64
	groups [maxGroups / 64]uint64 // groups whose report has arrived in the current batch
	come   bool
	late   bool
}

// Expect announces a request whose engine will report the reused blocks of prompt q, from the first
// one on. late means that the engine may hold blocks without a store event.
func (t *Translator) Expect(q block.Query, late bool) {
	if len(t.expected) == maxExpected {
		t.expected = slices.Delete(t.expected, 0, 1)
	}
	t.expected = append(t.expected, expected{
		root: q.Root, prompt: bytes.Clone(q.Bytes[:min(len(q.Bytes), expectBytes)]), length: len(q.Bytes), batch: t.batches, late: late,
	})
}

// awaits reports whether a store from a root may be an expected report.
func (t *Translator) awaits(root bool) bool { return root && len(t.expected) > 0 }

// again reports whether a store from the root, with the text in t.text, is an expected report. It
// is if it begins with a held block and is a proper prefix of an expected prompt, since some of
// each prompt is always computed. This applies once per cache group and batch. A prompt without
// held blocks is stored instead.
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
		// With partial knowledge each block counts at most once, so that it never outlives its
		// removal.
		return held || x.late
	}
	return false
}

// settleExpected removes reports that arrived with the batch or are overdue.
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
