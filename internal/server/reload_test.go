package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/fleet"
	"github.com/grapevine-epp/grapevine/internal/testkit"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const fileHead = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// configured opens a replica with a configuration in a folder laid out like a Kubernetes mount: the
// file links to ..data/epp.yaml, and ..data links to a folder with the contents.
func configured(t *testing.T, text string) (s *Server, mount string) {
	t.Helper()
	_, o := options(t, fleet.Options{Engines: 2})
	mount = t.TempDir()
	swap(t, mount, "..1", text)
	if err := os.Symlink("..data/epp.yaml", filepath.Join(mount, "epp.yaml")); err != nil {
		t.Fatal(err)
	}
	o.Config = filepath.Join(mount, "epp.yaml")
	return open(t, o), mount
}

// swap makes ..data lead to a new folder at once, as the kubelet does.
func swap(t *testing.T, mount, folder, text string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(mount, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mount, folder, "epp.yaml"), text)
	if err := os.Symlink(folder, filepath.Join(mount, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(mount, "..tmp"), filepath.Join(mount, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestConfigIsWatched: a replica applies a changed file soon after it is swapped or written. It
// rejects an invalid file and keeps the current configuration.
func TestConfigIsWatched(t *testing.T) {
	s, mount := configured(t, fileHead+"plugins: [{type: queue-scorer}]\n")
	hash := func() string { return s.Status().Config.Hash }
	first := hash()

	swap(t, mount, "..2", fileHead+"plugins: [{type: load-only-policy}]\n")
	testkit.Await(t, "the swapped file in use", func() bool { return hash() != first })
	second := hash()

	write(t, filepath.Join(mount, "..2", "epp.yaml"), fileHead+"plugins: [{type: laod-only-policy}]\n")
	testkit.Await(t, "the broken file refused", func() bool {
		return strings.HasSuffix(s.Status().Config.Problem, `epp.yaml:3:18: there is no plugin type "laod-only-policy" (did you mean "load-only-policy"?)`)
	})
	if h := hash(); h != second {
		t.Errorf("hash %s, want that of the file before, %s", h, second)
	}
	if ok := testutil.ToFloat64(s.config.reloads.ok); ok != 0 {
		t.Errorf("last reload successful: %v", ok)
	}

	swap(t, mount, "..3", fileHead+"plugins: [{type: queue-scorer}]\n")
	testkit.Await(t, "the mended file in use", func() bool { return s.Status().Config.Problem == "" && hash() == first })
	if ok := testutil.ToFloat64(s.config.reloads.ok); ok != 1 {
		t.Errorf("last reload successful: %v", ok)
	}
	if testutil.ToFloat64(s.config.reloads.hash.WithLabelValues(first)) != 1 || testutil.CollectAndCount(s.config.reloads.hash) != 1 {
		t.Error("the hash metric does not name the configuration in use alone")
	}

	if err := os.Remove(filepath.Join(mount, "epp.yaml")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the missing file told", func() bool { return strings.Contains(s.Status().Config.Problem, "no such file") })
	if hash() != first {
		t.Error("a configuration without a file went out of use")
	}
	write(t, filepath.Join(mount, "epp.yaml"), fileHead+"plugins: [{type: queue-scorer}]\n")
	testkit.Await(t, "the same file again", func() bool { return s.Status().Config.Problem == "" })
}

// TestReloadSetsThePace: a reload that adds sheddable priorities also increases the scrape rate to
// the freshness that the saturation detector requires. Without this, an idle pool with stale gauges
// would count as saturated.
func TestReloadSetsThePace(t *testing.T) {
	s, mount := configured(t, fileHead+"plugins: [{type: queue-scorer}]\n")
	if pace := s.config.gaugePace(); pace != 0 {
		t.Errorf("pace %v without priorities below 0", pace)
	}
	swap(t, mount, "..2", fileHead+"plugins: [{type: queue-scorer}]\nobjectives: [{name: batch, priority: -1}]\n")
	testkit.Await(t, "a pace", func() bool { return s.config.gaugePace() == 100*time.Millisecond })
	testkit.Await(t, "fast readings of an idle fleet", func() bool {
		fast := 0
		for _, e := range s.scrape.Status() {
			if e.Fast {
				fast++
			}
		}
		return fast == 2
	})
	swap(t, mount, "..3", fileHead+"plugins: [{type: queue-scorer}]\n")
	testkit.Await(t, "slow readings again", func() bool { return s.config.gaugePace() == 0 && !s.scrape.Status()[0].Fast })
}

// TestReloadMovesPorts: where events and metrics of endpoints are that say nothing
// themselves follows the file.
func TestReloadMovesPorts(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 1})
	at := netip.MustParseAddrPort("127.0.0.1:1")
	o.Endpoints = ""
	src := newOutage()
	o.Source = src.open
	o.Config = filepath.Join(t.TempDir(), "epp.yaml")
	say := func(events, metrics int) {
		write(t, o.Config, fmt.Sprintf("%splugins:\n- {type: precise-prefix-cache-producer, parameters: {kvEventsConfig: {podDiscoveryConfig: {socketPort: %d}}}}\n"+
			"- {type: metrics-data-source, parameters: {port: %d}}\n", fileHead, events, metrics))
	}
	say(5556, 9400)
	s := open(t, o)
	src.provide(discovery.Found{Specs: []endpoint.Spec{{Addr: at}}})
	f := func(events int, metrics string) {
		t.Helper()
		if ep := s.pool.Snapshot().Endpoints[0]; ep.Events.Port != events || ep.Metrics != metrics {
			t.Errorf("events at %d, metrics at %s", ep.Events.Port, ep.Metrics)
		}
	}
	f(5556, "http://127.0.0.1:9400/metrics")
	say(5600, 9500)
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	f(5600, "http://127.0.0.1:9500/metrics")
	write(t, o.Config, fileHead)
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	f(0, "")
}

// TestEndpointsOfConfig: without the flag, the configuration names the endpoints file, and decides
// whether it is watched.
func TestEndpointsOfConfig(t *testing.T) {
	_, o := options(t, fleet.Options{Engines: 2})
	o.Config = filepath.Join(t.TempDir(), "epp.yaml")
	list := o.Endpoints
	o.Endpoints = ""
	write(t, o.Config, fileHead)
	if s, err := Open(o); !errors.Is(err, errNoEndpoints) {
		t.Errorf("no endpoints at all: %v", err)
		if err == nil {
			_ = s.Stop(t.Context())
		}
	}
	write(t, o.Config, fileHead+"plugins: [{type: file-discovery, parameters: {path: "+list+", watchFile: false}}]\n"+
		"dataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}\n")
	s := open(t, o)
	if n := len(s.Status().Endpoints); n != 2 {
		t.Errorf("%d endpoints", n)
	}
}

// TestWarnsOfRestart: the warning about settings that require a restart is shown while the file
// differs from the one at startup, and disappears when the file is restored.
func TestWarnsOfRestart(t *testing.T) {
	parse := func(metricsPath, list string) *config.Config {
		c, problems := config.Parse("f", []byte(fileHead+"plugins:\n- {type: metrics-data-source, parameters: {path: "+metricsPath+"}}\n"+
			"- {type: file-discovery, parameters: {path: "+list+"}}\ndataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}\n"), config.Options{Table: pd.Table()})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return c
	}
	var said strings.Builder
	inUse := &configuration{o: configOptions{Log: slog.New(slog.NewTextHandler(&said, nil))}, opened: parse("/metrics", "a.yaml")}
	f := func(metricsPath, list string, want int) {
		t.Helper()
		said.Reset()
		if inUse.warnOfRestart(parse(metricsPath, list)); strings.Count(said.String(), "takes effect after a restart") != want {
			t.Errorf("%s, %s: want %d warnings:\n%s", metricsPath, list, want, said.String())
		}
	}
	f("/metrics", "a.yaml", 0)
	f("/other", "b.yaml", 2)
	f("/other", "b.yaml", 2)
	f("/metrics", "b.yaml", 1)
	f("/metrics", "a.yaml", 0)
}

// The queue may use only a part of the memory for bodies. While the queue is full, arriving
// requests are still read and get a proper refusal.
func TestQueueLeavesMemoryForArrivals(t *testing.T) {
	for _, asked := range []string{"0", "1Gi", "4Mi"} {
		_, o := options(t, fleet.Options{Engines: 1})
		o.Memory = 8 << 30
		o.Config = filepath.Join(t.TempDir(), "epp.yaml")
		write(t, o.Config, fileHead+"featureGates: [flowControl]\nflowControl: {maxBytes: "+asked+"}\n")
		s := open(t, o)
		bodies := s.budget.Share(budget.Bodies)
		got := s.config.waitRules(s.config.current()).Queue().MaxBytes
		if want := map[string]int64{"0": bodies / 4 * 3, "1Gi": 1 << 30, "4Mi": 4 << 20}[asked]; got != want || got >= bodies {
			t.Errorf("maxBytes %s: %d bytes may wait, want %d; bodies may take %d", asked, got, want, bodies)
		}
	}
}
