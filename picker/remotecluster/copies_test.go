package remotecluster

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestAskHasEveryField: prices depend on all fields of a request, and on its keys with both secrets during a
// rotation.
func TestAskHasEveryField(t *testing.T) {
	w := newWorld(t, nil, other("b", nil))
	also, err := filter.NewSecret([]byte("the next secret of the federation"))
	if err != nil {
		t.Fatal(err)
	}
	w.fleet.Update(&federation.View{Self: "a", Version: 9, Secret: w.secret, Also: also, Clusters: w.view.Clusters})
	r := prompt(500, "r")
	r.InputTokens, r.Objective, r.Clusters = 600, "gold", "b"
	a := w.fleet.ask(w.fleet.table.Load(), r, &scratch{}, Ask{Answer: 7, Hopped: false}, w.now)
	for _, name := range fields.Unset(a, "Hopped") { // set by the caller
		t.Errorf("%s is not set", name)
	}
	if a.Objective != r.Objective || a.Clusters != r.Clusters || a.Model != r.Target || len(a.Keys) != len(a.Also) || a.Keys[0] == a.Also[0] {
		t.Errorf("ask() = %+v, want the fields of the request and two sets of keys", a)
	}
}

// TestConfiguredTimeout: a configured time limit replaces the one from the round trip.
func TestConfiguredTimeout(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Mode, o.Asked, o.Timeout = ModeEndpoint, func(string) bool { return true }, 1234*time.Millisecond
	}, other("b", func(r *federation.Remote) {
		r.Direct, r.EPPs = []string{firstOfB}, []federation.Address{{HostPort: "epp-1:9006"}}
		r.Until = t0.Add(time.Hour)
	}))
	var got time.Duration
	w.asks = func(q *Question) (string, func(int), error) {
		got = q.Timeout
		return firstOfB, func(int) {}, nil
	}
	w.open(nil)
	w.busy(20)
	if _, _, err := w.place(prompt(500, "r")); err != nil {
		t.Fatal(err)
	}
	if got != 1234*time.Millisecond {
		t.Errorf("the time limit is %v, want the configured 1.234s", got)
	}
}

// TestMetricsHaveHelp: each metric has its own help text.
func TestMetricsHaveHelp(t *testing.T) {
	reg := prometheus.NewRegistry()
	if err := newWorld(t, nil).fleet.Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, f := range families {
		if other := seen[f.GetHelp()]; other != "" || !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("%s has the help text %q, also used by %q", f.GetName(), f.GetHelp(), other)
		}
		seen[f.GetHelp()] = f.GetName()
	}
	if len(seen) != 6 {
		t.Errorf("%d metrics, want 6", len(seen))
	}
}
