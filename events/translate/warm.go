package translate

import (
	"slices"

	"github.com/grapevine-epp/grapevine/events/decode"
)

// warmEvents is the number of events that are prefetched.
const warmEvents = 64

// lookAhead requests the parents of stores from the index at once, and announces blocks that come
// one per event. The index prefetches longer lists itself.
func (t *Translator) lookAhead(list []decode.Event) {
	t.parents, t.blocks, t.next = t.parents[:0], t.blocks[:0], 0
	for i := range list {
		e := &list[i]
		if e.Kind != decode.BlockStored {
			continue
		}
		if e.HasParent {
			t.parents = append(t.parents, e.Parent)
		}
		if len(e.Hashes) == 1 {
			t.blocks = append(t.blocks, e.Hashes[0])
		}
	}
	t.keys = slices.Grow(t.keys[:0], len(t.parents))[:len(t.parents)]
	if len(t.parents)+len(t.blocks) > 0 {
		t.opt.Index.Parents(t.opt.Source, t.parents, t.blocks, t.keys)
	}
}
