package link

import (
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// secretFile writes a file with secrets made of texts.
func secretFile(t *testing.T, file string, texts ...string) string {
	t.Helper()
	var b strings.Builder
	for _, text := range texts {
		b.WriteString(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(text, 16))) + "\n")
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConfigReachesCore: every setting of a cluster and its peers reaches the state machine.
func TestConfigReachesCore(t *testing.T) {
	dir := t.TempDir()
	c := &Config{}
	fields.Fill(c, "NATS")
	c.SecretFile, c.Peers[0].KeyFile = secretFile(t, filepath.Join(dir, "all"), "a", "b"), secretFile(t, filepath.Join(dir, "pair"), "p")
	l := &Link{o: Options{Config: c, Replica: "r"}, paces: map[string]*pace{}}
	o, keys, err := l.coreOptions()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fields.Unset(o, "Beat", "Push") { // the core has defaults
		t.Errorf("Options.%s is not set", name)
	}
	for _, name := range fields.Unset(o.Peers[0]) {
		t.Errorf("PeerOptions.%s is not set", name)
	}
	p := c.Peers[0]
	if got := o.Peers[0]; o.Lease != c.Lease || o.Drain != c.Drain || o.Rotate != c.Rotate || got.Rate != p.Rate || got.MaxFilter != p.MaxFilter ||
		!slices.Equal(got.Targets, p.Addresses) || !slices.Equal(got.Export, p.Export) || !slices.Equal(got.Accept, p.Accept) {
		t.Errorf("coreOptions() = %+v, want the settings %+v", o, c)
	}
	if string(keys[p.Name]) != strings.Repeat("p", 16) || l.paces[p.Name] == nil {
		t.Errorf("keys %q, want that of the pair", keys)
	}
}

// TestExportHasEveryConfiguredField: every setting of a pool reaches its description.
func TestExportHasEveryConfiguredField(t *testing.T) {
	c := &Config{}
	fields.Fill(c, "NATS")
	e := &c.Exports[0]
	e.Pool = "ns/p"
	x := c.Export(e)
	// Measured, or added by the part that reads the pool.
	measured := []string{"Direct", "Ready", "Engines", "Load", "Capacity", "Draining", "Price.Base", "Price.PerToken", "Price.PerPair", "Price.Step", "Price.PerSeq", "Price.PerContext"}
	for _, name := range fields.Unset(x, measured...) {
		t.Errorf("Export.%s is not set", name)
	}
	for _, list := range [][]federation.Address{x.Gateways, x.EPPs} {
		for _, name := range fields.Unset(list[0]) {
			t.Errorf("Address.%s is not set", name)
		}
	}
	if x.Gateways[0].SNI != e.Gateways[0].SNI || x.EPPs[0].Host != e.EPPs[0].Host || x.Region != c.Region || x.Zone != c.Zone {
		t.Errorf("Export() = %+v, want the settings %+v", x, e)
	}
}

// TestStatusHasEveryField shows a view in which every field has a value.
func TestStatusHasEveryField(t *testing.T) {
	secret, err := filter.NewSecret([]byte(strings.Repeat("s", 16)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Replica: "r", Config: &Config{Cluster: "self"}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var v federation.View
	fields.Fill(&v, "Secret", "Also")
	v.Secret, v.Also = secret, secret
	cluster := v.Clusters[0]
	pool := cluster.Pools[0]
	fields.Fill(pool, "Filter", "Secret", "Export.Engines")
	pool.Ready = []federation.Ready{{Model: "m", Count: 3}}
	pool.Filter, pool.Secret = filter.NewSink(secret, filter.Way{}, 1<<20).Filter(), secret
	in := time.Now().Add(time.Hour)
	cluster.Until, pool.Until, cluster.State, pool.State, cluster.RTT = in, in, federation.Draining, federation.Refused, time.Second
	v.Exports[0].Acks[0].State, v.Exports[0].Acks[0].Shown = federation.Live, federation.NotShown
	hot := filter.NewHot(10)
	hot.Touch([]block.Key{1})
	l.mu.Lock()
	l.dropped, l.refused["reason"] = 5, 1
	l.secrets.err = os.ErrNotExist
	l.meter.rates = map[string]Rates{cluster.Name: {In: 1, Out: 2}}
	l.hot[hotKey{v.Exports[0].Pool, secret}] = hot
	l.mu.Unlock()

	s := l.StatusOf(&v)
	for _, name := range fields.Unset(*s) {
		t.Errorf("Status.%s is not set", name)
	}
	for _, name := range fields.Unset(s.Clusters[0], "Sessions", "Made") { // counters of traffic
		t.Errorf("ClusterStatus.%s is not set", name)
	}
	for _, name := range fields.Unset(s.Clusters[0].Pools[0], "Bytes") { // of a filter's content
		t.Errorf("PoolStatus.%s is not set", name)
	}
	for _, name := range fields.Unset(s.Exports[0], "HotNote") { // set by the owner of the link
		t.Errorf("OwnStatus.%s is not set", name)
	}
	for _, name := range fields.Unset(s.Exports[0].Acknowledged[0]) {
		t.Errorf("AckStatus.%s is not set", name)
	}
	if c := s.Clusters[0]; c.Name != cluster.Name || c.Replica != cluster.Replica || s.Dropped != 5 {
		t.Errorf("StatusOf() = %+v, want the names of %+v", s, cluster)
	}
}

// TestSecretsAreExchanged: a changed file replaces both secrets, and the hot prefixes of a removed secret
// are dropped. A file that cannot be read changes nothing and is reported.
func TestSecretsAreExchanged(t *testing.T) {
	file := secretFile(t, filepath.Join(t.TempDir(), "secrets"), "a")
	l, err := Open(Options{Replica: "r", Config: &Config{Cluster: "self", SecretFile: file}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	use := func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		v := l.core.View(time.Now())
		if l.secrets.use != v.Secret || l.secrets.also != v.Also {
			t.Error("the link and its state machine have different secrets")
		}
		for k := range l.hot {
			if k.secret != v.Secret && k.secret != v.Also {
				t.Error("a set of hot prefixes belongs to a removed secret")
			}
		}
		name := nameOf(v.Secret)
		if v.Also != nil {
			name += " " + nameOf(v.Also)
		}
		return name
	}
	name := func(text string) string {
		s, err := filter.NewSecret([]byte(strings.Repeat(text, 16)))
		if err != nil {
			t.Fatal(err)
		}
		return nameOf(s)
	}
	l.mu.Lock()
	l.hotOf(federation.PoolKey{Namespace: "ns", Name: "p"}, l.secrets.use)
	l.mu.Unlock()
	for _, c := range []struct {
		texts []string
		want  string
		fails bool
	}{
		{[]string{"a"}, name("a"), false},
		{[]string{"a", "b"}, name("a") + " " + name("b"), false},
		{[]string{"b", "a"}, name("b") + " " + name("a"), false},
		{[]string{"c", "d", "e"}, name("b") + " " + name("a"), true},
		{[]string{"b"}, name("b"), false},
	} {
		secretFile(t, file, c.texts...)
		err := l.Reload()
		if got := use(); got != c.want || (err != nil) != c.fails || (l.Status().Problem != "") != c.fails {
			t.Errorf("file %v: secrets %q, error %v, problem %q, want %q, an error: %v", c.texts, got, err, l.Status().Problem, c.want, c.fails)
		}
	}
}
