package core

import (
	"bytes"
	"testing"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzReceive: no frame makes a Core panic, moves a position back, or makes it hold more than its
// limits.
func FuzzReceive(f *testing.F) {
	for _, b := range seedFrames() {
		f.Add(b)
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		c := newOne(group.Options{Self: group.Member{ID: "a", Boot: 1}, PendingBytes: 1000, SnapshotBytes: 1000, GaugeBytes: 1000})
		c.Advance(1)
		c.SetMembers([]group.Member{{ID: "b", Boot: 2}, {ID: "c", Boot: 3}})
		c.SetLink("b", true)
		c.log.SetSources([]string{"s1"})
		c.Receive("b", deltaFrame(2, "s1", 9, 0, 1))
		was := c.log.Position("s1")
		if len(b) >= group.HeaderLen {
			copy(b, group.Header(nil, b[2], 2)) // otherwise almost nothing passes the header check
		}
		for range 2 {
			frame, m := bytes.Clone(b), &Deltas{}
			if _, ok := c.Deliver(c.g.Now, "b", frame, m); !ok {
				m = nil
			}
			c.ReceiveDelivered("b", frame, m)
			c.Advance(c.g.Now + 50_000_000)
			c.Tick()
			c.work()
			c.Drain()
		}
		if now := c.log.Position("s1"); now.Inc < was.Inc || (now.Inc == was.Inc && now.Next < was.Next) {
			t.Errorf("position moved back from %+v to %+v", was, now)
		}
		if h := c.MemoryUse(); h.Pending > 1000 || h.Loads > 1000 {
			t.Errorf("memory exceeds the limits: %+v", h)
		}
	})
}

// seedFrames returns a frame of every kind.
func seedFrames() [][]byte {
	name, src, load := []byte("index"), []byte("s1"), []byte("load")
	at := func(inc, next uint64) logs.Position { return logs.Position{Inc: inc, Next: next} }
	g := group.DeltaRun{Source: src, Inc: 9, Entries: []group.Entry{
		{First: 2, Last: 2, Payload: []byte("x")}, {First: 3, Last: 5, Payload: []byte("y")}, {First: 9, Last: 9},
	}}
	beat := group.Beat{Seq: 1, Sent: 2, Flags: 15, App: []byte("v"), States: []group.StateInfo{
		{Kind: group.StateGauge, Name: load, Version: 1, Ver: 3}, {Kind: group.StateLog, Name: name, Version: 1}, {Kind: 7, Name: []byte("new")},
	}}
	gauge := group.Gauge{Name: load, Version: 1, Ver: 1, Entries: []group.GaugeEntry{{Key: []byte("k"), Value: []byte("v")}}}
	digests := group.Digests{Name: name, Version: 1, Full: true, Claims: []group.Claim{
		{Source: src, Pos: at(9, 7), Digest: logs.Digest{Count: 1, Xor: 2}, Reading: true}, {Source: src, Pos: at(10, 0)},
	}}
	page := group.PageReply{Name: name, Source: src, Version: 1, ID: 1, Snap: at(9, 9), Pages: 1, Bytes: 2, Payload: []byte("pp")}
	return [][]byte{
		frameOf(group.KindBeat, 2, beat.Append(nil)),
		frameOf(group.KindGauge, 2, gauge.Append(nil)),
		frameOf(group.KindGaugeAsk, 2, (&group.GaugeAsk{Name: load}).Append(nil)),
		frameOf(group.KindFeed, 2, (&group.Feed{Name: []byte("hints"), Version: 1, Seq: 1, Payloads: [][]byte{{'h'}}}).Append(nil)),
		frameOf(group.KindDelta, 2, g.Append(group.DeltasHead(nil, "index", 1, 1))),
		frameOf(group.KindDelta, 2, (&group.DeltaRun{Source: []byte("\x00abcdefg"), Entries: g.Entries}).Append(group.DeltasHead(nil, "index", 1, 1))),
		frameOf(group.KindDigest, 2, digests.Append(nil)),
		frameOf(group.KindRangeAsk, 2, (&group.Ask{Name: name, Source: src, Version: 1, ID: 1, At: at(9, 0)}).Append(nil)),
		frameOf(group.KindRangeReply, 2, (&group.RangeReply{Name: name, Version: 1, ID: 1, Pos: at(9, 9), Deltas: g}).Append(nil)),
		frameOf(group.KindPageAsk, 2, (&group.Ask{Name: name, Source: src, Version: 1, ID: 1}).Append(nil)),
		frameOf(group.KindPageReply, 2, page.Append(nil)),
		frameOf(group.KindMissed, 2, (&group.Missed{Name: name, Have: group.Numbers{All: 1, One: 2}}).Append(nil)),
		frameOf(group.KindTips, 2, (&group.Tips{Name: name, Version: 1, Tips: []group.Tip{{Next: 3}}, Number: group.Number{N: 4}}).Append(nil)),
		frameOf(group.KindRelay, 2, g.Append(group.DeltasHead(nil, "index", 1, 1))),
		frameOf(group.KindRelayed, 2, g.Append(group.DeltasHead((&group.Relayed{ID: []byte("c"), Boot: 3}).Append(nil), "index", 1, 1))),
		frameOf(group.KindDirect, 2, (&group.Direct{Name: []byte("pages"), Version: 1, Payload: []byte("p")}).Append(nil)),
		frameOf(99, 2, []byte("a kind that does not exist yet")),
	}
}
