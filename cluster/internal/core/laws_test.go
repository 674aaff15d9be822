package core

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"pgregory.net/rapid"
)

// TestDeltaLaws: for any order, grouping and repetition of the deltas of two incarnations, the
// furthest position and its content are reached. Delivering all of them again changes nothing.
func TestDeltaLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n1, n2 := rapid.Uint64Range(0, 12).Draw(rt, "n1"), rapid.Uint64Range(1, 12).Draw(rt, "n2")
		type id struct{ inc, seq uint64 }
		var all []id
		for s := range n1 {
			all = append(all, id{1, s})
		}
		for s := range n2 {
			all = append(all, id{2, s})
		}
		for range rapid.IntRange(0, 10).Draw(rt, "dups") {
			all = append(all, all[rapid.IntRange(0, len(all)-1).Draw(rt, "dup")])
		}
		rng := rand.New(rand.NewSource(rapid.Int64().Draw(rt, "order")))
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

		c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}})
		c.SetMembers([]group.Member{{ID: "b", Boot: 2}})
		c.log.SetSources([]string{"s1"})
		for range 2 {
			for _, d := range all {
				c.Receive("b", deltaFrame(2, "s1", d.inc, d.seq))
			}
			c.expect(t, "s1", logs.Position{Inc: 2, Next: n2}, content(2, n2))
		}
	})
}

// TestGaugeLaws: after any sequence of updates with losses and repetitions, a final full list makes
// the gauge correct. Merging a message twice changes nothing.
func TestGaugeLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := map[string]string{}
		var frames [][]byte
		ver := uint64(0)
		for range rapid.IntRange(1, 10).Draw(rt, "updates") {
			m := group.Gauge{Name: []byte("load"), Version: 1, From: ver, Ver: ver + 1}
			ver++
			k := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "key")
			v := rapid.StringN(0, 3, 9).Draw(rt, "value")
			e := group.GaugeEntry{Key: []byte(k), Value: []byte(v), Removed: rapid.Bool().Draw(rt, "removed")}
			if e.Removed {
				delete(want, k)
			} else {
				want[k] = v
			}
			m.Entries = append(m.Entries, e)
			frames = append(frames, frameOf(group.KindGauge, 2, m.Append(nil)))
		}
		full := group.Gauge{Name: []byte("load"), Version: 1, Full: true, Ver: ver}
		for k, v := range want {
			full.Entries = append(full.Entries, group.GaugeEntry{Key: []byte(k), Value: []byte(v)})
		}
		rng := rand.New(rand.NewSource(rapid.Int64().Draw(rt, "order")))
		rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		frames = append(frames, frameOf(group.KindGauge, 2, full.Append(nil)))

		c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}})
		c.SetMembers([]group.Member{{ID: "b", Boot: 2}})
		for range 2 {
			for _, f := range frames {
				c.Receive("b", slices.Clone(f))
			}
			got := c.sink.of["b"]
			if len(got) != len(want) {
				rt.Fatalf("gauge is %v, want %v", got, want)
			}
			for k, v := range want {
				if got[k] != v {
					rt.Fatalf("gauge is %v, want %v", got, want)
				}
			}
		}
	})
}
