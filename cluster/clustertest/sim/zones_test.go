package sim

import (
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
)

// border is the traffic between zones per second, including overhead.
type border struct{ deltas, claims, beats float64 }

// crossing simulates n members in several zones that share the streams of engines, each of which
// writes two batches a second.
func crossing(t *testing.T, n, zones, engines int, relay bool) border {
	t.Helper()
	var bytes [256]float64
	p := Plan{
		Seed: 1, Members: n, Sources: engines, Every: 500 * time.Millisecond, Share: group.SharePartitioned, Name: "10.20.30.%d:8000/0",
		Net: Conditions{Delay: 200 * time.Microsecond}, Zones: zones, Options: group.Options{Relay: relay},
	}
	p.Frame = func(from, to int, f []byte) []byte {
		if p.zone(from) != p.zone(to) {
			bytes[f[2]] += float64(len(f) + framing)
		}
		return f
	}
	w := New(p)
	w.StartAll()
	w.Run(20 * time.Second) // losses at the start are repaired by then
	missed := w.missed()
	bytes = [256]float64{}
	const window = 20
	w.Run(window * time.Second)
	if n := w.missed() - missed; n > 0 {
		t.Errorf("%d relayed frames were missed without losses", n)
	}
	if fs := w.Failures(); len(fs) > 0 {
		t.Error(fs)
	}
	return border{
		deltas: (bytes[group.KindDelta] + bytes[group.KindRelay] + bytes[group.KindRelayed]) / window,
		claims: (bytes[group.KindDigest] + bytes[group.KindTips] + bytes[group.KindMissed] + bytes[group.KindRangeAsk] + bytes[group.KindRangeReply]) / window,
		beats:  bytes[group.KindBeat] / window,
	}
}

// missed counts relayed frames that a member did not get.
func (w *World) missed() (n uint64) {
	for _, m := range w.members {
		n += m.core.Stats().RelayMissed
	}
	return n
}

// TestBorder: with relays a change crosses to each remote zone once instead of once per member
// there.
func TestBorder(t *testing.T) {
	for _, c := range []struct{ members, zones, engines int }{{4, 2, 64}, {6, 2, 64}, {9, 3, 128}, {15, 3, 128}} {
		with, without := crossing(t, c.members, c.zones, c.engines, true), crossing(t, c.members, c.zones, c.engines, false)
		t.Logf("%2d members of %d zones, %d engines: deltas %6.1f kB/s across, %6.1f each to each; claims %.1f, %.1f; heartbeats %.1f, %.1f",
			c.members, c.zones, c.engines, with.deltas/1e3, without.deltas/1e3, with.claims/1e3, without.claims/1e3, with.beats/1e3, without.beats/1e3)
		share := float64(c.zones) / float64(c.members) // one member per zone, of all members there
		if got := with.deltas / without.deltas; got > share*1.05 || got < share*.95 {
			t.Errorf("%d members of %d zones: %.3f of the deltas cross, want %.3f", c.members, c.zones, got, share)
		}
		if with.claims > without.claims*1.5+100 {
			t.Errorf("%d members of %d zones: %.0f bytes of claims and repairs, %.0f without relays", c.members, c.zones, with.claims, without.claims)
		}
		if all := with.deltas + with.claims + with.beats; all >= without.deltas+without.claims+without.beats {
			t.Errorf("%d members of %d zones: %.0f bytes cross in all, no fewer than without relays", c.members, c.zones, all)
		}
	}
}
