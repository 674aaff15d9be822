package remotecluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// TestClaimedRegion: a cluster's announced region is used only if the file does not name its
// region.
func TestClaimedRegion(t *testing.T) {
	for regions, want := range map[string]string{"": "dearer", "jp": "not allowed there", "eu": "dearer"} {
		w := newWorld(t, func(o *Options) {
			o.Region, o.Rules = "eu", Rules{Default: []string{"region:eu"}}
			if regions != "" {
				o.Regions = map[string]string{"b": regions}
			}
		}, other("b", func(r *federation.Remote) { r.Region = "eu" }))
		w.expect(prompt(500, "here"), "b", want)
	}
}

// TestOnTrial: a failed cluster that may be tried again is not shown as healthy.
func TestOnTrial(t *testing.T) {
	w := newWorld(t, nil, other("b", nil))
	w.busy(20)
	result := func() string {
		s := w.fleet.Status(w.now)[0]
		if s.Trial {
			s.Result += ", on trial"
		}
		return s.Result
	}
	d := w.expect(prompt(500, "fails"), "b", "chosen")
	if got := result(); got != "candidate" {
		t.Errorf("at first: %s", got)
	}
	w.broken(d)
	if got := result(); got != "failed of late" {
		t.Errorf("after a failure: %s", got)
	}
	w.now = w.now.Add(firstBackoff + time.Millisecond)
	if got := result(); got != "candidate, on trial" {
		t.Errorf("when it may be tried: %s", got)
	}
	w.finish(w.expect(prompt(500, "tries"), "b", "chosen"), 50*time.Millisecond)
	if got := result(); got != "candidate" {
		t.Errorf("after a success: %s", got)
	}
}

// TestClockPutBack: after the clock is set back, earlier prompts do not count as cached until the
// same time is reached again.
func TestClockPutBack(t *testing.T) {
	var m memory
	keys := []block.Key{1, 2, 3}
	m.record(keys, t0)
	if got := m.run(keys, t0.Add(time.Second)); got == 0 {
		t.Error("dropped immediately")
	}
	if got := m.run(keys, t0.Add(-time.Hour)); got != 0 {
		t.Errorf("an hour before: %d", got)
	}
}

// TestOnlyPrefill: a cluster without decode endpoints serves no requests, even if its other
// endpoints are ready.
func TestOnlyPrefill(t *testing.T) {
	if uint8(endpoint.RoleDecode) != 1 {
		t.Fatal("federation.Ready.Role has another bit for those that answer")
	}
	w := newWorld(t, nil, other("b", func(r *federation.Remote) {
		r.Ready = []federation.Ready{{Model: "m", Role: uint8(endpoint.RolePrefill), Count: 4}}
	}))
	w.busy(20)
	w.expect(prompt(500, "x"), "b", "nothing ready there")
}

// TestDescribedOnce: an endpoint with several models is announced once.
func TestDescribedOnce(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Name: "a", Host: "10.0.0.1", Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill-decode"}, Models: []string{"m", "adapter", "other"}},
		{Name: "p", Host: "10.0.0.2", Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Labels: map[string]string{endpoint.LabelRole: "prefill"}, Models: []string{"m"}},
	})
	e := Describe(pool, federation.Export{}, false, t0)
	if e.Endpoints("") != 1 || e.Endpoints("m") != 1 || e.Endpoints("nobody") != 0 {
		t.Errorf("%d endpoints, %d of m: %+v", e.Endpoints(""), e.Endpoints("m"), e.Ready)
	}
}
