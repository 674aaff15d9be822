package budget

import (
	"sync"
	"testing"
)

// claim is a holder that knows whether it was ended.
type claim struct {
	Holder
	ended bool
}

func claimOf(hs *Holders) *claim {
	c := &claim{}
	hs.Begin(&c.Holder, func() { c.ended = true })
	return c
}

// TestHolders fills the share and asks for more: the one that waits with the most is ended,
// unless the other would hold more; those that wait no more are not.
func TestHolders(t *testing.T) {
	b := New(1 << 20)
	share := int(b.Share(Bodies))
	hs := NewHolders(b, Bodies)
	const part = 1 << 10
	large, kept := claimOf(hs), claimOf(hs)
	if !large.Take(share/2) || !kept.Take(share/2) {
		t.Fatal("there is room")
	}
	large.Wait()
	kept.Wait()
	kept.Wait() // once
	kept.Keep()
	var small []*claim
	for range 100 {
		c := claimOf(hs)
		c.Wait()
		small = append(small, c)
	}
	if huge := claimOf(hs); huge.Take(share/2+part) || large.ended {
		t.Error("one that holds less was ended for one that would hold more")
	}
	if !small[0].Take(part) || !large.ended || kept.ended {
		t.Errorf("the largest one that waits was not ended for a small one: %v, %v", large.ended, kept.ended)
	}
	if small[1].Take(part) {
		t.Error("memory was lent twice, before its holder gave it back")
	}
	large.End()
	for _, c := range small[1:] {
		if !c.Take(part) {
			t.Error("what was given back cannot be taken")
		}
	}
	for _, c := range small {
		c.End()
	}
	kept.End()
	kept.End()
	if n := b.Used(Bodies); n != 0 {
		t.Errorf("%d bytes are taken in the end", n)
	}
	var none Holder
	none.Wait()
	if none.End(); !none.Take(1<<40) || none.Bytes() != 0 {
		t.Error("a holder of nothing is refused")
	}
	free := claimOf(NewHolders(nil, Bodies))
	if free.Wait(); !free.Take(1 << 40) {
		t.Error("no budget refuses")
	}
	free.End()
}

// TestHoldersLend ends all that hold much at once, as when many come together: who comes with
// little before they have given it back is lent of it, no more than there is, and nobody who
// would hold much.
func TestHoldersLend(t *testing.T) {
	b := New(5 << 20)
	share := int(b.Share(Bodies))
	part := share / littlePart
	hs := NewHolders(b, Bodies)
	large, first := claimOf(hs), claimOf(hs)
	large.Take(share)
	large.Wait()
	if !first.Take(part/2) || !large.ended {
		t.Fatal("the large one was not ended")
	}
	if first.Take(part) {
		t.Error("who holds more than a little is lent")
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
		t.Errorf("%d bytes are lent of %d, in pieces of %d", lent, share, part)
	}
	for _, c := range all {
		c.End()
	}
	if n := b.Used(Bodies); n != 0 || len(hs.ending) != 0 {
		t.Errorf("%d bytes are taken in the end, %d holders are kept", n, len(hs.ending))
	}
}

// TestHoldersTogether has many that fill the share again and again, each ending when it is
// told to: nobody who holds little is refused for long, and nothing is lost.
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
						t.Errorf("%d bytes are taken of %d", used, share)
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
		t.Errorf("%d bytes are taken in the end", n)
	}
}
