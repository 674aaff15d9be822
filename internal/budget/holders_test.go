package budget

import (
	"sync"
	"testing"
)

// claim is a holder that records whether it was ended.
type claim struct {
	Holder
	ended bool
}

func claimOf(hs *Holders) *claim {
	c := &claim{}
	hs.Begin(&c.Holder, func() { c.ended = true })
	return c
}

// TestHolders: when the share is full, the waiting holder with the most is ended unless the new one
// would hold more. Holders that are not waiting are not ended.
func TestHolders(t *testing.T) {
	b := New(1 << 20)
	share := int(b.Share(Bodies))
	hs := NewHolders(b, Bodies)
	const part = 1 << 10
	large, kept := claimOf(hs), claimOf(hs)
	if !large.Take(share/2) || !kept.Take(share/2) {
		t.Fatal("Take() = false with room left")
	}
	large.Wait()
	kept.Wait()
	kept.Wait() // no effect
	kept.Keep()
	var small []*claim
	for range 100 {
		c := claimOf(hs)
		c.Wait()
		small = append(small, c)
	}
	if huge := claimOf(hs); huge.Take(share/2+part) || large.ended {
		t.Error("a smaller holder was ended for a larger one")
	}
	if !small[0].Take(part) || !large.ended || kept.ended {
		t.Errorf("largest waiting holder was not ended for a small one: %v, %v", large.ended, kept.ended)
	}
	if small[1].Take(part) {
		t.Error("memory was lent twice before its holder released it")
	}
	large.End()
	for _, c := range small[1:] {
		if !c.Take(part) {
			t.Error("released bytes cannot be taken")
		}
	}
	for _, c := range small {
		c.End()
	}
	kept.End()
	kept.End()
	if n := b.Used(Bodies); n != 0 {
		t.Errorf("%d bytes still taken at the end", n)
	}
	var none Holder
	none.Wait()
	if none.End(); !none.Take(1<<40) || none.Bytes() != 0 {
		t.Error("Take() = false for a holder without a budget")
	}
	free := claimOf(NewHolders(nil, Bodies))
	if free.Wait(); !free.Take(1 << 40) {
		t.Error("nil budget refused a request")
	}
	free.End()
}

// TestHoldersLend: when all large holders are ended at once, small ones are lent some of their
// memory before it is released, up to its size, and large ones are not.
func TestHoldersLend(t *testing.T) {
	b := New(5 << 20)
	share := int(b.Share(Bodies))
	part := share / littlePart
	hs := NewHolders(b, Bodies)
	large, first := claimOf(hs), claimOf(hs)
	large.Take(share)
	large.Wait()
	if !first.Take(part/2) || !large.ended {
		t.Fatal("large holder was not ended")
	}
	if first.Take(part) {
		t.Error("a large holder was lent memory")
	}
	all := []*claim{large, first}
	lent := part / 2
	for range 2 * share / part {
		c := claimOf(hs)
		if all = append(all, c); !c.Take(part) {
			break
		}
		lent += part
	}
	if lent > share || lent <= share-part {
		t.Errorf("lent %d bytes of %d, in pieces of %d", lent, share, part)
	}
	for _, c := range all {
		c.End()
	}
	if n := b.Used(Bodies); n != 0 || len(hs.ending) != 0 {
		t.Errorf("%d bytes still taken at the end, %d holders kept", n, len(hs.ending))
	}
}

// TestHoldersTogether: many holders fill the share repeatedly and end when required. No small
// holder is refused for long, and nothing is lost.
func TestHoldersTogether(t *testing.T) {
	b := New(1 << 20)
	share := b.Share(Bodies)
	hs := NewHolders(b, Bodies)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 2000 {
				var h Holder
				ended := make(chan struct{})
				hs.Begin(&h, sync.OnceFunc(func() { close(ended) }))
				for range 1 + i {
					if !h.Take(int(share) / 64) {
						break
					}
					h.Wait()
					if used := b.Used(Bodies); used > 2*share {
						t.Errorf("%d bytes taken of %d", used, share)
					}
					select {
					case <-ended:
					default:
						continue
					}
					break
				}
				h.End()
			}
		})
	}
	wg.Wait()
	if n := b.Used(Bodies); n != 0 {
		t.Errorf("%d bytes still taken at the end", n)
	}
}
