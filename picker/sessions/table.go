package sessions

import (
	"math/bits"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
)

// slots is an open-addressing hash table of sessions, 16 bytes per slot and without pointers. It is
// 60% to 75% full, so a session takes about 24 bytes. Only clear removes entries.
type slots struct {
	slots []slot
	n     int
}

type slot struct {
	key Key // 0: free
	id  block.EndpointID
	at  stamp
}

// stamp is the time of a binding, in units of 2^24 ns (17 ms), which wrap after 834 days. Two times
// are ordered correctly if they differ by less than half of that. A session that returns after
// longer may appear older than it is.
type stamp uint32

func stampOf(t time.Time) stamp { return stamp(t.UnixNano() >> 24) }

func (a stamp) after(b stamp) bool { return int32(a-b) > 0 }

const minSlots = 16

// home is where the search for a key starts. The top bits of a key choose its shard, so the lower
// ones are used.
func (t *slots) home(k Key) int {
	hi, _ := bits.Mul64(uint64(k)<<4, uint64(len(t.slots)))
	return int(hi)
}

// find returns the slot of k, or a free slot; nil in an empty table.
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

// get returns the entry of k.
func (t *slots) get(k Key) (slot, bool) {
	if s := t.find(k); s != nil && s.key == k {
		return *s, true
	}
	return slot{}, false
}

// put adds or replaces a session. The table grows by a quarter when it is three quarters full.
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

// clear removes all sessions and keeps the memory.
func (t *slots) clear() {
	clear(t.slots)
	t.n = 0
}
