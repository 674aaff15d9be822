package group

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
	genGroup = rapid.Custom(func(t *rapid.T) DeltaRun {
		g := DeltaRun{Source: genN.Draw(t, "source"), Inc: genU.Draw(t, "inc")}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			first := rapid.Uint64Range(0, 1<<40).Draw(t, "first")
			g.Entries = append(g.Entries, Entry{first, first + rapid.Uint64Range(0, 9).Draw(t, "span"), genB.Draw(t, "payload")})
		}
		return g
	})
)

// codec is a message as the round trip sees it.
type codec interface {
	Append([]byte) []byte
	Decode(Reader) error
}

func roundTrip(t *rapid.T, in, out codec) {
	b := in.Append(nil)
	if err := out.Decode(Body(append(make([]byte, HeaderLen), b...))); err != nil {
		t.Fatalf("%+v: %v", in, err)
	}
	opts := []cmp.Option{cmp.AllowUnexported(Reader{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(in, out, opts...); diff != "" {
		t.Fatalf("%T differs: %s", in, diff)
	}
	// A truncated message decodes to an error or to another message. It must not panic.
	_ = out.Decode(Body(append(make([]byte, HeaderLen), b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]...)))
	// Fields that later versions append are ignored.
	if err := out.Decode(Body(append(make([]byte, HeaderLen), append(b, genB.Draw(t, "more")...)...))); err != nil {
		t.Fatalf("%T with added fields: %v", in, err)
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &Beat{genU.Draw(t, "seq"), genU.Draw(t, "sent"), genU.Draw(t, "echo"), genU.Draw(t, "hold"), genU.Draw(t, "flags"), genB.Draw(t, "app"), nil, genU.Draw(t, "every"), rapid.Uint64Min(1).Draw(t, "wall")} // without a clock nothing follows
		for range rapid.IntRange(0, 3).Draw(t, "states") {
			s := StateInfo{Kind: rapid.ByteMax(127).Draw(t, "kind"), Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Ver: genU.Draw(t, "ver")}
			if s.Kind == StateLog {
				s.One, s.Lacks = genU.Draw(t, "one"), genU.Draw(t, "lacks")
			}
			b.States = append(b.States, s)
		}
		roundTrip(t, b, &Beat{})

		g := &Gauge{Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Full: rapid.Bool().Draw(t, "full"), From: genU.Draw(t, "from"), Ver: genU.Draw(t, "ver")}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			g.Entries = append(g.Entries, GaugeEntry{genB.Draw(t, "key"), genB.Draw(t, "value"), rapid.Bool().Draw(t, "removed")})
		}
		roundTrip(t, g, &Gauge{})

		roundTrip(t, &Direct{genN.Draw(t, "name"), genU.Draw(t, "version"), genB.Draw(t, "payload")}, &Direct{})

		roundTrip(t, &Feed{genN.Draw(t, "name"), genU.Draw(t, "version"), genU.Draw(t, "seq"), rapid.SliceOfN(genB, 0, 3).Draw(t, "payloads")}, &Feed{})

		d := &Digests{Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Full: rapid.Bool().Draw(t, "full")}
		for range rapid.IntRange(0, 3).Draw(t, "claims") {
			d.Claims = append(d.Claims, Claim{genN.Draw(t, "source"), genPos.Draw(t, "pos"), Digest{genU.Draw(t, "count"), genU.Draw(t, "xor")}, rapid.Bool().Draw(t, "reading")})
		}
		d.Number = Number{rapid.Uint64Max(1<<60).Draw(t, "number"), rapid.Bool().Draw(t, "one")}
		d.Covers, d.Stamp = Numbers{genU.Draw(t, "all"), genU.Draw(t, "one")}, genU.Draw(t, "stamp")
		roundTrip(t, d, &Digests{})
		roundTrip(t, &Missed{genN.Draw(t, "name"), Numbers{genU.Draw(t, "all"), genU.Draw(t, "one")}}, &Missed{})
		tips := &Tips{Name: genN.Draw(t, "name"), Version: genU.Draw(t, "version"), Number: d.Number}
		for range rapid.IntRange(0, 3).Draw(t, "tips") {
			tips.Tips = append(tips.Tips, Tip{[TipNick]byte{1, 2, 3}, genU.Draw(t, "next")})
		}
		roundTrip(t, tips, &Tips{})

		roundTrip(t, &Ask{genN.Draw(t, "name"), genN.Draw(t, "source"), genU.Draw(t, "version"), genU.Draw(t, "id"), genPos.Draw(t, "at"), rapid.Bool().Draw(t, "force"), genPos.Draw(t, "snap"), genU.Draw(t, "page")}, &Ask{})
		roundTrip(t, &RangeReply{genN.Draw(t, "name"), genU.Draw(t, "version"), genU.Draw(t, "id"), genU.Draw(t, "status"), genPos.Draw(t, "pos"), genGroup.Draw(t, "deltas")}, &RangeReply{})
		roundTrip(t, &PageReply{
			Name: genN.Draw(t, "name"), Source: genN.Draw(t, "source"), Version: genU.Draw(t, "version"), ID: genU.Draw(t, "id"),
			Status: genU.Draw(t, "status"), Snap: genPos.Draw(t, "snap"), Digest: Digest{genU.Draw(t, "count"), genU.Draw(t, "xor")},
			Page: genU.Draw(t, "page"), Pages: genU.Draw(t, "pages"), Bytes: genU.Draw(t, "bytes"), Payload: genB.Draw(t, "payload"),
		}, &PageReply{})
	})
}

// TestDeltaBytes bounds the overhead of deltas, for one batch per frame and for many.
func TestDeltaBytes(t *testing.T) {
	g := DeltaRun{Source: []byte("10.11.12.13:8000/0"), Inc: 1 << 40}
	for s := range uint64(10) {
		g.Entries = append(g.Entries, Entry{1e6 + s, 1e6 + s, bytes.Repeat([]byte{1}, 100)})
	}
	b := append(DeltasHead(Header(nil, KindDelta, 1), "index", 1, 1), g.Append(nil)...)
	if over := len(b) - 10*100; over > 75 {
		t.Errorf("%d bytes of overhead for 10 batches", over)
	}
	g.Entries = g.Entries[:1]
	b = append(DeltasHead(Header(nil, KindDelta, 1), "index", 1, 1), g.Append(nil)...)
	if over := len(b) - 100; over > 60 {
		t.Errorf("%d bytes of overhead for one batch", over)
	}
}
