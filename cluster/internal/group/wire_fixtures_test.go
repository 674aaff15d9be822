package group

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// TestWireFixtures decodes the frames that published releases send to other members.
func TestWireFixtures(t *testing.T) {
	pos := Position{Inc: 1 << 40, Next: 77, Lost: 3}
	number := Number{N: 12, One: true}
	source := []byte("10.1.2.3:8000/0")
	run := DeltaRun{Source: source, Inc: pos.Inc, Entries: []Entry{{70, 70, []byte{1, 2, 3}}, {71, 74, nil}}}
	frame := func(kind byte, m interface{ Append([]byte) []byte }) []byte {
		return m.Append(Header(nil, kind, 0x0102030405060708))
	}
	message := func(name string, kind byte, m interface{ Append([]byte) []byte }, empty func() codec) testkit.WireMessage {
		return testkit.WireMessage{Name: name, Encoded: frame(kind, m), Decode: func(b []byte) (any, error) {
			out := empty()
			if err := out.Decode(Body(b)); err != nil {
				return nil, err
			}
			return []any{b[0], b[2], Boot(b), out}, nil // not the minor version, which each release raises
		}}
	}
	deltas := number.Append(run.Append(DeltasHead(Header(nil, KindDelta, 9), "index", 2, 1)))
	deltas = AppendChecks(deltas, []Check{{0, 0xdeadbeef}})
	testkit.WireFixtures(t,
		message("beat", KindBeat, &Beat{Seq: 5, Sent: 1e6, Echo: 2e6, Hold: 300, Flags: FlagSettled | FlagWantDigest, App: []byte("0.1.0"), Every: 200000, States: []StateInfo{
			{Kind: StateGauge, Name: []byte("load"), Version: 1, Ver: 8}, {Kind: StateFeed, Name: []byte("hints"), Version: 1, Ver: 9},
			{Kind: StateLog, Name: []byte("index"), Version: 2, Ver: 10, One: 4, Lacks: 1}}}, func() codec { return &Beat{} }),
		message("gauge", KindGauge, &Gauge{Name: []byte("load"), Version: 1, From: 7, Ver: 8, Entries: []GaugeEntry{{[]byte("k"), []byte("v"), false}, {[]byte("gone"), nil, true}}}, func() codec { return &Gauge{} }),
		message("gauge-ask", KindGaugeAsk, &GaugeAsk{[]byte("load")}, func() codec { return &GaugeAsk{} }),
		message("feed", KindFeed, &Feed{[]byte("hints"), 1, 9, [][]byte{{1}, {2, 3}}}, func() codec { return &Feed{} }),
		message("direct", KindDirect, &Direct{[]byte("files"), 1, []byte{4, 5}}, func() codec { return &Direct{} }),
		message("page-ask", KindPageAsk, &Ask{[]byte("index"), source, 2, 4, pos, false, pos, 2}, func() codec { return &Ask{} }),
		message("digests", KindDigest, &Digests{Name: []byte("index"), Version: 2, Full: true, Number: number, Covers: Numbers{10, 4}, Stamp: 6,
			Claims: []Claim{{source, pos, Digest{5, 6}, true}}}, func() codec { return &Digests{} }),
		message("missed", KindMissed, &Missed{[]byte("index"), Numbers{10, 4}}, func() codec { return &Missed{} }),
		message("tips", KindTips, &Tips{Name: []byte("index"), Version: 2, Number: number, Tips: []Tip{{[TipNick]byte{1, 2, 3}, 77}}}, func() codec { return &Tips{} }),
		message("range-ask", KindRangeAsk, &Ask{[]byte("index"), source, 2, 4, pos, true, pos, 1}, func() codec { return &Ask{} }),
		message("range-reply", KindRangeReply, &RangeReply{[]byte("index"), 2, 4, 1, pos, run}, func() codec { return &RangeReply{} }),
		message("page-reply", KindPageReply, &PageReply{Name: []byte("index"), Source: source, Version: 2, ID: 4, Status: 1, Snap: pos, Digest: Digest{5, 6}, Page: 1, Pages: 3, Bytes: 900, Payload: []byte{9}}, func() codec { return &PageReply{} }),
		testkit.WireMessage{Name: "deltas", Encoded: deltas, Decode: func(b []byte) (any, error) { return readDeltas(Body(b)) }},
		testkit.WireMessage{Name: "relayed", Encoded: append((&Relayed{[]byte("a-1"), 3}).Append(Header(nil, KindRelayed, 9)), deltas[HeaderLen:]...), Decode: func(b []byte) (any, error) {
			var by Relayed
			r := Body(b)
			if err := by.Decode(&r); err != nil {
				return nil, err
			}
			m, err := readDeltas(r)
			return []any{by, m}, err
		}},
	)
}

// readDeltas decodes deltas with their runs.
func readDeltas(r Reader) (any, error) {
	var m Deltas
	if err := m.Decode(r); err != nil {
		return nil, err
	}
	out := []any{m.Name, m.Version, m.Number, m.Checks}
	m.Each(func(_ int, g *DeltaRun) {
		out = append(out, DeltaRun{Source: append([]byte(nil), g.Source...), Inc: g.Inc, Entries: append([]Entry(nil), g.Entries...)})
	})
	return out, nil
}
