package core

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var (
	genU   = rapid.Uint64()
	genB   = rapid.SliceOfN(rapid.Byte(), 0, 20)
	genN   = rapid.SliceOfN(rapid.Byte(), 1, 20)
	genPos = rapid.Custom(func(t *rapid.T) Position {
		p := Position{Inc: genU.Draw(t, "inc"), Next: genU.Draw(t, "next")}
		p.Lost = rapid.Uint64Range(0, p.Next).Draw(t, "lost")
		return p
	})
	genGroup = rapid.Custom(func(t *rapid.T) group {
		g := group{Source: genN.Draw(t, "source"), Inc: genU.Draw(t, "inc")}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			first := rapid.Uint64Range(0, 1<<40).Draw(t, "first")
			g.Entries = append(g.Entries, entry{first, first + rapid.Uint64Range(0, 9).Draw(t, "span"), genB.Draw(t, "payload")})
		}
		return g
	})
)

// codec is a message as the round trip sees it.
type codec interface {
	append([]byte) []byte
	decode(reader) error
}

func roundTrip(t *rapid.T, in, out codec) {
	b := in.append(nil)
	if err := out.decode(reader{b: b}); err != nil {
		t.Fatalf("%+v: %v", in, err)
	}
	opts := []cmp.Option{cmp.AllowUnexported(reader{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(in, out, opts...); diff != "" {
		t.Fatalf("%T differs: %s", in, diff)
	}
	// A message that is cut short is an error or another message, no panic.
	_ = out.decode(reader{b: b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]})
	// Fields that later versions add are not looked at.
	if err := out.decode(reader{b: append(b, genB.Draw(t, "more")...)}); err != nil {
		t.Fatalf("%T with added fields: %v", in, err)
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &beat{genU.Draw(t, "seq"), genU.Draw(t, "sent"), genU.Draw(t, "echo"), genU.Draw(t, "hold"), genU.Draw(t, "flags"), genB.Draw(t, "app"), nil}
		for range rapid.IntRange(0, 3).Draw(t, "states") {
			b.States = append(b.States, stateInfo{rapid.ByteMax(127).Draw(t, "kind"), genN.Draw(t, "name"), genU.Draw(t, "version"), genU.Draw(t, "ver")})
		}
		roundTrip(t, b, &beat{})

		g := &gaugeMsg{Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Full: rapid.Bool().Draw(t, "full"), From: genU.Draw(t, "from"), Ver: genU.Draw(t, "ver")}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			g.Entries = append(g.Entries, gaugeEntry{genB.Draw(t, "key"), genB.Draw(t, "value"), rapid.Bool().Draw(t, "removed")})
		}
		roundTrip(t, g, &gaugeMsg{})

		roundTrip(t, &feedMsg{genN.Draw(t, "name"), genU.Draw(t, "version"), genU.Draw(t, "seq"), rapid.SliceOfN(genB, 0, 3).Draw(t, "payloads")}, &feedMsg{})

		d := &digestMsg{Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Full: rapid.Bool().Draw(t, "full")}
		for range rapid.IntRange(0, 3).Draw(t, "claims") {
			d.Claims = append(d.Claims, claim{genN.Draw(t, "source"), genPos.Draw(t, "pos"), Digest{genU.Draw(t, "count"), genU.Draw(t, "xor")}, rapid.Bool().Draw(t, "reading")})
		}
		roundTrip(t, d, &digestMsg{})

		roundTrip(t, &ask{genN.Draw(t, "name"), genN.Draw(t, "source"), genU.Draw(t, "version"), genU.Draw(t, "id"), genPos.Draw(t, "at"), rapid.Bool().Draw(t, "force"), genPos.Draw(t, "snap"), genU.Draw(t, "page")}, &ask{})
		roundTrip(t, &rangeReply{genN.Draw(t, "name"), genU.Draw(t, "version"), genU.Draw(t, "id"), genU.Draw(t, "status"), genPos.Draw(t, "pos"), genGroup.Draw(t, "deltas")}, &rangeReply{})
		roundTrip(t, &pageReply{
			Name: genN.Draw(t, "name"), Source: genN.Draw(t, "source"), Version: genU.Draw(t, "version"), ID: genU.Draw(t, "id"),
			Status: genU.Draw(t, "status"), Snap: genPos.Draw(t, "snap"), Digest: Digest{genU.Draw(t, "count"), genU.Draw(t, "xor")},
			Page: genU.Draw(t, "page"), Pages: genU.Draw(t, "pages"), Bytes: genU.Draw(t, "bytes"), Payload: genB.Draw(t, "payload"),
		}, &pageReply{})
	})
}

// TestDeltaBytes holds the overhead of deltas: one batch a frame, and many.
func TestDeltaBytes(t *testing.T) {
	g := group{Source: []byte("10.11.12.13:8000/0"), Inc: 1 << 40}
	for s := range uint64(10) {
		g.Entries = append(g.Entries, entry{1e6 + s, 1e6 + s, bytes.Repeat([]byte{1}, 100)})
	}
	b := append(deltaHead(header(nil, kindDelta, 1), "index", 1, 1), g.append(nil)...)
	if over := len(b) - 10*100; over > 75 {
		t.Errorf("%d bytes of overhead for 10 batches", over)
	}
	g.Entries = g.Entries[:1]
	b = append(deltaHead(header(nil, kindDelta, 1), "index", 1, 1), g.append(nil)...)
	if over := len(b) - 100; over > 60 {
		t.Errorf("%d bytes of overhead for one batch", over)
	}
}

// FuzzReceive: no frame makes a Core panic, moves a position back, or makes it
// hold more than its limits.
func FuzzReceive(f *testing.F) {
	for _, b := range seedFrames() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newOne(Options{Self: Member{ID: "a", Boot: 1}, PendingBytes: 1000, SnapshotBytes: 1000, GaugeBytes: 1000})
		c.Advance(1)
		c.SetMembers([]Member{{ID: "b", Boot: 2}})
		c.SetLink("b", true)
		c.log.SetSources([]string{"s1"})
		c.Receive("b", deltaFrame(2, "s1", 9, 0, 1))
		was := c.log.Position("s1")
		if len(b) >= headerLen {
			copy(b, header(nil, b[2], 2)) // else nearly nothing gets past the header
		}
		for range 2 {
			c.Receive("b", bytes.Clone(b))
			c.Advance(c.now + 50_000_000)
			c.Tick()
			c.Drain()
		}
		if now := c.log.Position("s1"); now.Inc < was.Inc || (now.Inc == was.Inc && now.Next < was.Next) {
			t.Errorf("moved back from %+v to %+v", was, now)
		}
		if h := c.Held(); h.Pending > 1000 || h.Loads > 1000 {
			t.Errorf("holds %+v", h)
		}
	})
}

// seedFrames returns a frame of every kind.
func seedFrames() [][]byte {
	name, src := []byte("index"), []byte("s1")
	g := group{Source: src, Inc: 9, Entries: []entry{{2, 2, []byte("x")}, {3, 5, []byte("y")}, {9, 9, nil}}}
	bodies := map[byte][]byte{
		kindBeat:       (&beat{Seq: 1, Sent: 2, Flags: 15, App: []byte("v"), States: []stateInfo{{1, []byte("load"), 1, 3}, {3, name, 1, 0}, {7, []byte("new"), 1, 1}}}).append(nil),
		kindGauge:      (&gaugeMsg{Name: []byte("load"), Version: 1, Ver: 1, Entries: []gaugeEntry{{Key: []byte("k"), Value: []byte("v")}}}).append(nil),
		kindGaugeAsk:   putBytes(nil, "load"),
		kindFeed:       (&feedMsg{[]byte("hints"), 1, 1, [][]byte{[]byte("h")}}).append(nil),
		kindDelta:      g.append(deltaHead(nil, "index", 1, 1)),
		kindDigest:     (&digestMsg{name, 1, true, []claim{{src, Position{9, 7, 0}, Digest{1, 2}, true}, {src, Position{10, 0, 0}, Digest{}, false}}}).append(nil),
		kindRangeAsk:   (&ask{Name: name, Source: src, Version: 1, ID: 1, At: Position{9, 0, 0}}).append(nil),
		kindRangeReply: (&rangeReply{Name: name, Version: 1, ID: 1, Pos: Position{9, 9, 0}, Deltas: g}).append(nil),
		kindPageAsk:    (&ask{Name: name, Source: src, Version: 1, ID: 1}).append(nil),
		kindPageReply:  (&pageReply{Name: name, Source: src, Version: 1, ID: 1, Snap: Position{9, 9, 0}, Pages: 1, Bytes: 2, Payload: []byte("pp")}).append(nil),
		99:             []byte("a kind that does not exist yet"),
	}
	var out [][]byte
	for kind := range byte(100) {
		if b, ok := bodies[kind]; ok {
			out = append(out, frameOf(kind, 2, b))
		}
	}
	return out
}
