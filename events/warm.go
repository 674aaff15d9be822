package events

// warmEvents is for how many events the index is warmed at once.
const warmEvents = 64

// warm announces the hashes of stores to the index: those of parents, and those
// that come one to an event; the index itself looks ahead in longer lists.
func (t *Translator) warm(list []Event) {
	t.parents, t.blocks = t.parents[:0], t.blocks[:0]
	for i := range list {
		e := &list[i]
		if e.Kind != BlockStored {
			continue
		}
		if e.HasParent {
			t.parents = append(t.parents, e.Parent)
		}
		if len(e.Hashes) == 1 {
			t.blocks = append(t.blocks, e.Hashes[0])
		}
	}
	if len(t.parents) > 1 {
		t.opt.Index.Warm(t.opt.Source, t.parents, t.blocks)
	}
}
