package facts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// sentLists collects the lists that Lists sends.
type sentLists struct {
	last  map[string][]byte
	count map[string]int
}

func listsWithGroup(now *time.Time) (*Lists, *sentLists) {
	sent := &sentLists{map[string][]byte{}, map[string]int{}}
	g := Group{Gauge: func(string, uint64, cluster.GaugeSink) SetFunc {
		return func(key string, value []byte) error {
			sent.last[key] = value
			sent.count[key]++
			return nil
		}
	}}
	return NewLists(g, func() time.Time { return *now }, slog.New(slog.DiscardHandler)), sent
}

func listOf(from string, read time.Time, n int) *discovery.Record {
	r := &discovery.Record{From: from, Read: read}
	for i := range n {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		r.Found.Specs = append(r.Found.Specs, endpoint.Spec{
			Name: fmt.Sprintf("vllm-%d", i), Namespace: "prod", Host: at.Addr().String(), Addr: at, Instance: fmt.Sprintf("7d1c6b1e-0000-4000-8000-%012x/0", i*7919),
			Labels: map[string]string{"app": "vllm", "pod-template-hash": "7d9c8b5f6", "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "llm-d.ai/role": "decode"},
		})
	}
	return r
}

// TestListsOfPeers: the newest list of the same source is returned, by the ages that peers sent and
// independent of their clocks.
func TestListsOfPeers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	x, _ := listsWithGroup(&now)
	clock := now.Add(time.Hour) // of the peers
	merge := func(origin string, r *discovery.Record) {
		t.Helper()
		peer, sent := listsWithGroup(&clock)
		peer.Publish(r)
		for key, value := range sent.last {
			if err := x.Merge(origin, StateVersion, key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, ok := x.Newest("a"); ok {
		t.Error("Newest() without peers returns a list")
	}
	merge("old", listOf("a", clock.Add(-time.Minute), 3))
	merge("new", listOf("a", clock.Add(-time.Second), 2))
	merge("other", listOf("b", clock, 1))
	got, ok := x.Newest("a")
	want := listOf("a", now.Add(-time.Second), 2)
	if diff := cmp.Diff(*want, got.Record, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); !ok || got.Peer != "new" || diff != "" {
		t.Errorf("Newest() = %q, %t (-want +got):\n%s", got.Peer, ok, diff)
	}
	x.Drop("new")
	if got, ok := x.Newest("a"); !ok || got.Peer != "old" {
		t.Errorf("Newest() after the newest peer is gone = %q, %t, want old", got.Peer, ok)
	}
	for _, value := range [][]byte{nil, {1, 2, 3}, deflate([]byte("{}")), deflate(bytes.Repeat([]byte(" "), maxList+1))} {
		if err := x.Merge("bad", StateVersion, keyList, value); err != nil {
			t.Errorf("Merge(%.10x) = %v, want nil", value, err)
		}
		if err := x.Merge("bad", StateVersion, keyAge, binary.AppendVarint(nil, 0)); err != nil {
			t.Fatal(err)
		}
		if got, ok := x.Newest("a"); !ok || got.Peer != "old" {
			t.Errorf("Newest() beside the malformed list %.10x = %q, %t, want old", value, got.Peer, ok)
		}
	}
}

// TestListsAreSmall: an unchanged list is sent once, and lists of thousands of pods fit into one
// value.
func TestListsAreSmall(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	x, sent := listsWithGroup(&now)
	x.Publish(listOf("a", now, 5000))
	now = now.Add(10 * time.Second)
	x.Publish(listOf("a", now, 5000))
	if sent.count[keyList] != 1 || sent.count[keyAge] != 2 {
		t.Errorf("sent %v, want one list and two ages", sent.count)
	}
	if n := len(sent.last[keyList]); n > 500<<10 {
		t.Errorf("5000 endpoints take %d bytes", n)
	}
}

// FuzzList decodes arbitrary bytes as the list of a peer.
func FuzzList(f *testing.F) {
	b, err := listOf("a", time.Unix(0, 0), 2).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(deflate(b))
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, b []byte) {
		if r, err := readList(b); err == nil && r.From == "" {
			t.Errorf("%x: a list without a source", b)
		}
	})
}
