package sessions

import (
	"math/bits"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// slots is a hash table of sessions by open addressing, 16 bytes a slot and
// without pointers: at three fifths to three quarters full, some 24 bytes a session. Nothing is
// ever removed from it but by clear.
type slots struct {
	slots []slot
	n     int
}

type slot struct {
	key Key // 0: free
	id  block.EndpointID
	at  stamp
}

// stamp is when a binding was made, in units of 2^24 ns (17 ms), which wrap
// after 834 days: of two times less than half of that apart the later is known. A
// session that comes back after longer than that may be taken for older than it was.
type stamp uint32

func stampOf(t time.Time) stamp { return stamp(t.UnixNano() >> 24) }

func (a stamp) after(b stamp) bool { return int32(a-b) > 0 }

const minSlots = 16

// home is where the search for a key begins. The top bits of a key choose its
// shard, so the ones below them count.
func (t *slots) home(k Key) int {
	hi, _ := bits.Mul64(uint64(k)<<4, uint64(len(t.slots)))
	return int(hi)
}

// find returns the slot of k, or the free one where it belongs; nil in an empty table.
func (t *slots) find(k Key) *slot {
	if len(t.slots) == 0 {
		return nil
	}
	for i := t.home(k); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if s := &t.slots[i]; s.key == k || s.key == 0 {
			return s
		}
	}
}

// get returns what is known of k.
func (t *slots) get(k Key) (slot, bool) {
	if s := t.find(k); s != nil && s.key == k {
		return *s, true
	}
	return slot{}, false
}

// put enters a session, or replaces it. It grows by a quarter when three quarters
// are taken.
func (t *slots) put(e slot) {
	if s := t.find(e.key); s != nil && s.key == e.key {
		*s = e
		return
	}
	if 4*(t.n+1) > 3*len(t.slots) {
		old := t.slots
		t.slots = make([]slot, max(minSlots, len(old)+len(old)/4))
		for _, s := range old {
			if s.key != 0 {
				*t.find(s.key) = s
			}
		}
	}
	*t.find(e.key) = e
	t.n++
}

// clear forgets all sessions and keeps the memory for the next ones.
func (t *slots) clear() {
	clear(t.slots)
	t.n = 0
}
