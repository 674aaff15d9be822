package server

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/sizing"
)

// ownLog is the log of a replica whose parts are examined.
type ownLog struct{ slog.Handler }

func (l ownLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l ownLog) WithGroup(string) slog.Handler      { return l }

// mostOptions returns options that differ from the defaults, of a replica in a group.
func mostOptions(t *testing.T) Options {
	t.Helper()
	_, o := options(t, fleet.Options{Engines: 1, Engine: sim.Options{Events: &sim.EventOptions{}}})
	o.Name, o.Version, o.Zone, o.RevisionLabels = "replica-1", "v9", "zone-1", []string{"revision"}
	o.Cluster = ClusterOptions{
		Mode: "gossip", Label: "test", Bind: "127.0.0.1:0", StreamBind: "127.0.0.1:0", Advertise: "127.0.0.1", StreamAdvertise: "127.0.0.1",
		Keys: [][]byte{make([]byte, 32)}, Share: "mesh", TCPOnly: true, Moved: make(chan struct{}),
		Found: func(context.Context) ([]string, error) { return nil, nil }, MissingRights: func() []string { return nil },
	}
	o.TargetsKey = bytes.Repeat([]byte{1}, 32)
	o.Memory, o.MaxBody, o.BodyTimeout = 1<<30, 1<<20, 11*time.Second
	o.KVTransfer, o.PassControl = kvtransfer.Policy{Action: 1, Allow: []string{"field"}}, true
	o.MessageTimeout, o.MaxMessageTimeout, o.WorkTimeout, o.SlowDecision = 12*time.Second, 13*time.Second, 14*time.Second, 15*time.Second
	o.DecisionHeader, o.AllowModeOverride, o.FallbackMetadata, o.IgnoreSubset = true, true, true, true
	o.FullReport, o.PlaceUnknown, o.RefuseKillers, o.PassModels = true, true, true, true
	o.FlightDir, o.FlightTrace = filepath.Join(t.TempDir(), "flight"), time.Second
	o.Gateway, o.Destinations, o.AnswerModel = extproc.GatewayEnvoy, 2, extproc.AnswerModel(extproc.AnswerModels()[1])
	o.PickListen, o.PickEnds, o.PickToken, o.PickExpiry = "127.0.0.1:0", "127.0.0.1:0", "token", 16*time.Second
	o.MetricsCompat, o.MetricsPool = true, "pool"
	o.Engines = EngineOptions{MetricsPath: "/metrics", Verify: true}
	o.ProbeRendering, o.ProbeIdle, o.SampleBodies, o.Continuations = true, 17*time.Second, .5, 1
	o.SizeTarget, o.Speculate, o.ScrapeSlow, o.ScrapeFast = sizing.Default, 18*time.Second, 2*time.Second, 3*time.Second
	o.ReadyTimeout, o.Keep = 19*time.Second, 20*time.Second
	o.Log = slog.New(ownLog{slog.DiscardHandler})
	o.ConfigText = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: destination-endpoint-served-verifier\n- type: prefix-cache-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: prefix-cache-scorer\n"
	return o
}

// passed are the records that the replica passes to its parts, other than those named ...Options.
var passed = []string{
	"server.reporter", "server.condition", "server.configUsers", "server.groupDecisions", "server.cacheKnowledge",
	"facts.Queue", "history.Source",
}

// otherOptions are options that the replica does not make, or whose parts it does not open here.
var otherOptions = []string{
	"server.Options", "server.ClusterOptions", "server.EngineOptions", "server.XDSOptions", "prefix.ModelOptions", // given by the caller
	"modelfiles.Options", "multicluster.Options", "remotecluster.Options", // off
	"group.Options", "stream.Options", "events.Options", "health.Options", "budget.ListenOptions", "prompt.Options", // made by parts
}

// unsetOptions are the options that keep their zero value, with the reason.
var unsetOptions = map[string]string{
	"server.configOptions.File": "the test gives the text", "server.modelFinderOptions.Peers": "model files are not shared",
	"prompt.ModelsOptions.Now": "the real clock", "prompt.ModelsOptions.load": "for tests of that package", "share.IndexOptions.Secret": "the group agrees on a seed",
	"share.IndexOptions.Events": "defaults", "gossip.Options.Join": "the first replica", "gossip.Options.QueueBytes": "the default",
	"gossip.Options.CertFile": "generated", "gossip.Options.KeyFile": "generated", "gossip.Options.CAFile": "generated",
	"server.xdsShareOptions.XDS": "off", "server.xdsShareOptions.TLS": "off", "discovery.FileOptions.NoWatch": "files are watched",
	"scrape.Options.Transport": "made from TLS", "picker.Options.RemoteClusters": "no federation", "server.chooserOptions.federated": "no federation",
	"server.condition.Federated": "no federation", "server.reporter.Federation": "no federation", "server.reporter.Tracer": "off",
	"extproc.Options.Assume": "for tests", "extproc.Options.Tracer": "off",
}

// TestPartsHaveAllOptions opens a replica with most settings, and looks into its parts. Each option of a part
// is set, unless it is listed. Settings of the same name are equal, and parts log to the replica's log. An
// option that is added to a part later fails this test until the replica passes it on.
func TestPartsHaveAllOptions(t *testing.T) {
	s, err := Open(mostOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	settings := reflect.ValueOf(s.o)
	seen, unset := map[string]bool{}, map[string]bool{}
	fields.Walk(s, func(r reflect.Value) {
		name := r.Type().String()
		if !strings.HasSuffix(strings.ToLower(name), "options") && !slices.Contains(passed, name) || slices.Contains(otherOptions, name) {
			return
		}
		seen[name] = true
		for i := range r.NumField() {
			f := r.Field(i)
			f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
			field := name + "." + r.Type().Field(i).Name
			if log, ok := f.Interface().(*slog.Logger); ok && log != nil {
				if _, own := log.Handler().(ownLog); !own {
					t.Errorf("%s is not the replica's log", field)
				}
			}
			if f.IsZero() {
				unset[field] = true
				if unsetOptions[field] == "" {
					t.Errorf("%s is not set", field)
				}
			} else if want := settings.FieldByName(r.Type().Field(i).Name); want.IsValid() && want.Type() == f.Type() && want.Comparable() && !want.Equal(f) {
				t.Errorf("%s = %v, want %v, the replica's", field, f, want)
			}
		}
	})
	for field := range unsetOptions {
		if !unset[field] {
			t.Errorf("%s is set or not found: remove it from the list", field)
		}
	}
	for _, name := range passed {
		if !seen[name] {
			t.Errorf("no part has a %s: remove it from the list", name)
		}
	}
	if len(seen) < 25 {
		t.Errorf("found options of %d types, want 25 or more: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}

// TestStatusHasEveryMember: the status of a replica and of its members has every field of the group's state.
func TestStatusHasEveryMember(t *testing.T) {
	var p cluster.Peer
	fields.Fill(&p)
	m := memberStatus(&p)
	for _, name := range fields.Unset(m, "Reading") { // of this replica's own streams
		t.Errorf("MemberStatus.%s is not set", name)
	}
	if m.Name != p.Name || m.ID != p.ID || m.Addr != p.Addr || m.Version != p.Version || m.Zone != p.Zone || m.State != p.State || m.Phase != p.Phase {
		t.Errorf("memberStatus() = %+v, want the fields of %+v", m, p)
	}

	o := mostOptions(t)
	s := open(t, o)
	st := s.Status()
	if len(st.Members) != 1 || len(st.Endpoints) != 1 {
		t.Fatalf("%d members and %d endpoints, want one of each", len(st.Members), len(st.Endpoints))
	}
	self, ep := st.Members[0], st.Endpoints[0]
	if st.Name != o.Name || st.Version != o.Version || self.Name != o.Name || self.Version != o.Version || self.Zone != o.Zone || self.ID == "" || self.Addr == "" || self.Phase == "" {
		t.Errorf("status of %s %s, member %+v, want the names of the options, and an address", st.Name, st.Version, self)
	}
	if c := st.Cluster; c.State == "" || c.Line == "" || c.Transport != "gossip" || !c.Encrypted || c.Phase != self.Phase || c.Advertised == "" {
		t.Errorf("status of the group: %+v, want all fields", c)
	}
	if first := s.pool.Snapshot().Endpoints[0]; ep.Address != first.Address || ep.Name != first.Name || ep.Name == "" {
		t.Errorf("status of endpoint %s %s, want %s %s", ep.Address, ep.Name, first.Address, first.Name)
	}
}
