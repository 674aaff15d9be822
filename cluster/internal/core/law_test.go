package core

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// longFrames builds frames of n elements, by the element that repeats.
var longFrames = map[string]func(n int) []byte{
	"gauges": func(n int) []byte {
		g := group.Gauge{Name: []byte("load"), Version: 1, Ver: 1}
		for i := range n { // few keys, so that the test's own map is not measured
			g.Entries = append(g.Entries, group.GaugeEntry{Key: binary.AppendUvarint(nil, uint64(i%1000)), Value: []byte("v")})
		}
		return frameOf(group.KindGauge, 2, g.Append(nil))
	},
	"feeds": func(n int) []byte {
		m := group.Feed{Name: []byte("hints"), Version: 1, Seq: 1, Payloads: make([][]byte, n)}
		return frameOf(group.KindFeed, 2, m.Append(nil))
	},
	"entries": func(n int) []byte {
		r := group.DeltaRun{Source: []byte("s1"), Inc: 9}
		for i := range n {
			r.Entries = append(r.Entries, group.Entry{First: uint64(i), Last: uint64(i)})
		}
		return frameOf(group.KindDelta, 2, r.Append(group.DeltasHead(nil, "index", 1, 1)))
	},
	"early entries": func(n int) []byte {
		r := group.DeltaRun{Source: []byte("s1"), Inc: 9}
		for i := range n {
			r.Entries = append(r.Entries, group.Entry{First: uint64(10 + 2*i), Last: uint64(10 + 2*i), Payload: []byte("x")})
		}
		return frameOf(group.KindDelta, 2, r.Append(group.DeltasHead(nil, "index", 1, 1)))
	},
	"runs": func(n int) []byte {
		b := group.DeltasHead(nil, "index", 1, n)
		for i := range n {
			b = (&group.DeltaRun{Source: []byte("s1"), Inc: 9, Entries: []group.Entry{{First: uint64(i), Last: uint64(i)}}}).Append(b)
		}
		return frameOf(group.KindDelta, 2, b)
	},
	"runs of nobody": func(n int) []byte {
		b := group.DeltasHead(nil, "index", 1, n)
		for i := range n {
			b = (&group.DeltaRun{Source: binary.AppendUvarint([]byte("x"), uint64(i)), Inc: 9, Entries: []group.Entry{{}}}).Append(b)
		}
		return frameOf(group.KindDelta, 2, b)
	},
	"relayed runs": func(n int) []byte {
		b := group.DeltasHead((&group.Relayed{ID: []byte("c"), Boot: 3}).Append(nil), "index", 1, n)
		for range n {
			b = (&group.DeltaRun{Source: []byte("s1"), Inc: 9, Entries: []group.Entry{{}}}).Append(b)
		}
		return frameOf(group.KindRelayed, 2, b)
	},
	"claims": func(n int) []byte {
		d := group.Digests{Name: []byte("index"), Version: 1, Full: true}
		for i := range n {
			d.Claims = append(d.Claims, group.Claim{Source: binary.AppendUvarint([]byte("x"), uint64(i)), Pos: logs.Position{Inc: 9, Next: 7}})
		}
		return frameOf(group.KindDigest, 2, d.Append(nil))
	},
	"claims of one": func(n int) []byte {
		d := group.Digests{Name: []byte("index"), Version: 1, Full: true}
		for i := range n {
			d.Claims = append(d.Claims, group.Claim{Source: []byte("s1"), Pos: logs.Position{Inc: uint64(9 + i), Next: 7}, Reading: true})
		}
		return frameOf(group.KindDigest, 2, d.Append(nil))
	},
	"tips": func(n int) []byte {
		return frameOf(group.KindTips, 2, (&group.Tips{Name: []byte("index"), Version: 1, Tips: make([]group.Tip, n)}).Append(nil))
	},
	"states": func(n int) []byte {
		b := group.Beat{Seq: 1, Sent: 2}
		for i := range n {
			b.States = append(b.States, group.StateInfo{Kind: group.StateLog, Name: binary.AppendUvarint([]byte("x"), uint64(i)), Version: 1})
		}
		return frameOf(group.KindBeat, 2, b.Append(nil))
	},
	"a page": func(n int) []byte {
		return frameOf(group.KindPageReply, 2, (&group.PageReply{Name: []byte("index"), Source: []byte("s1"), Version: 1, ID: 1, Pages: 1, Payload: make([]byte, n)}).Append(nil))
	},
	"a range": func(n int) []byte {
		r := group.DeltaRun{Source: []byte("s1"), Inc: 9, Entries: make([]group.Entry, n)}
		return frameOf(group.KindRangeReply, 2, (&group.RangeReply{Name: []byte("index"), Version: 1, ID: 1, Pos: logs.Position{Inc: 9, Next: 9}, Deltas: r}).Append(nil))
	},
	"zeros": func(n int) []byte { return frameOf(group.KindDelta, 2, make([]byte, n)) },
	"ones":  func(n int) []byte { return frameOf(group.KindDigest, 2, bytes.Repeat([]byte{1}, n)) },
}

// TestWorkOfFrames: the work for a frame is proportional to its length, up to the longest frame.
// Longer input comes as several frames.
func TestWorkOfFrames(t *testing.T) {
	for name, of := range longFrames {
		elements := 1 << 10
		for len(of(2*elements)) <= group.MaxFrame/4 {
			elements *= 2
		}
		each := len(of(elements))
		testkit.Linear(t, name, func(n int) func() {
			frames := [][]byte{}
			for left := n; left > 0; left -= each {
				frames = append(frames, of(min(elements, 1+left*elements/each)))
			}
			return func() {
				c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}})
				c.Advance(1)
				c.SetMembers([]group.Member{{ID: "b", Boot: 2}, {ID: "c", Boot: 3}})
				c.SetLink("b", true)
				c.log.SetSources([]string{"s1"})
				for _, f := range frames {
					m := &Deltas{}
					if _, ok := c.Deliver(c.g.Now, "b", f, m); !ok {
						m = nil
					}
					c.ReceiveDelivered("b", f, m)
					c.Advance(c.g.Now + 50_000_000)
					c.Tick()
					c.work()
					c.Drain()
				}
			}
		})
	}
}
