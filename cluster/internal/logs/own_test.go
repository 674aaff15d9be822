package logs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// ownedBy returns the sources of each member as computed by self while the member leaves is
// leaving.
func ownedBy(self string, members []string, sources int, leaves string) map[string][]string {
	g := group.New(group.Options{Self: group.Member{ID: self, Boot: 1}})
	g.Leaving = self == leaves
	l := NewSet(g).New("index", 1, nothing{}, LogOptions{Owned: true})
	for _, m := range members {
		if m == self {
			continue
		}
		p := g.Add(group.Member{ID: m, Name: m, Boot: 2})
		l.AddPeer(p)
		p.Up, p.Leaving = true, m == leaves
		l.SetStated(p, 1)
	}
	var names []string
	for i := range sources {
		names = append(names, fmt.Sprintf("10.0.%d.%d:8000/0", i/256, i%256))
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	l.SetSources(names)
	l.divide()
	owned := map[string][]string{}
	for _, s := range l.order {
		id := self
		if s.owner != nil {
			id = s.owner.ID
		}
		owned[id] = append(owned[id], s.name)
	}
	return owned
}

// A leaving member owns nothing, in every member's view. So its sources move once: the others then
// own the same sources as after it is gone.
func TestLeaverOwnsNothing(t *testing.T) {
	members := []string{"a", "b", "c", "d"}
	for _, sources := range []int{4, 64, 512} {
		gone := ownedBy("a", members[:3], sources, "")
		for _, self := range members {
			got := ownedBy(self, members, sources, "d")
			if n := len(got["d"]); n > 0 {
				t.Errorf("%d sources: leaving member %s owns %d in the view of %s, want 0", sources, "d", n, self)
			}
			for _, m := range members[:3] {
				if !slices.Equal(got[m], gone[m]) {
					t.Errorf("%d sources: in the view of %s, %s owns different sources than after d is gone", sources, self, m)
				}
			}
		}
	}
}

// The assignment does not depend on which member computes it or on the order of updates. No member
// owns over 5% more than the mean, and a member that leaves moves few sources besides its own.
func TestDivide(t *testing.T) {
	members := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for _, sources := range []int{1, 9, 64, 128, 512, 2048} {
		first := ownedBy("a", members, sources, "")
		second := ownedBy("e", members, sources, "")
		limit, moved := (sources*21+20*len(members)-1)/(20*len(members)), 0
		rest := ownedBy("a", members[:8], sources, "")
		for _, m := range members {
			if !slices.Equal(first[m], second[m]) {
				t.Errorf("%d sources: the sources of %s depend on the member that divides", sources, m)
			}
			if n := len(first[m]); n > limit {
				t.Errorf("%d sources: %s owns %d, want at most %d", sources, m, n, limit)
			}
			for _, s := range first[m] {
				if m != "i" && !slices.Contains(rest[m], s) {
					moved++
				}
			}
		}
		if moved > sources/9+1 {
			t.Errorf("%d sources: %d sources of remaining members moved when one left", sources, moved)
		}
		t.Logf("%d sources: %d to %d each, %d moved of members that stayed", sources, least(first, members), most(first), moved)
	}
}

func most(owned map[string][]string) (n int) {
	for _, s := range owned {
		n = max(n, len(s))
	}
	return n
}

func least(owned map[string][]string, members []string) int {
	n := 1 << 30
	for _, m := range members {
		n = min(n, len(owned[m]))
	}
	return n
}
