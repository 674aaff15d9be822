package server

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/scrape"
)

// loadConfig reads the configuration file, or returns the default without one. data is the file's
// content, nil if it cannot be read.
func loadConfig(path string, table plugin.Table) (c *config.Config, data []byte, err error) {
	if path == "" {
		return config.Default(config.Options{Table: table}), nil, nil
	}
	if data, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	c, err = parseConfig(path, data, table)
	return c, data, err
}

// loadConfig reads the configuration named by the options.
func (s *Server) loadConfig() (c *config.Config, data []byte, err error) {
	if s.o.ConfigText != "" {
		c, err = parseConfig("--config-text", []byte(s.o.ConfigText), s.o.Plugins)
	} else {
		c, data, err = loadConfig(s.o.Config, s.o.Plugins)
	}
	if err == nil {
		s.o.Engines.apply(c)
	}
	return c, data, err
}

func parseConfig(name string, data []byte, table plugin.Table) (*config.Config, error) {
	c, problems := config.Parse(name, data, config.Options{Table: table})
	if len(problems) > 0 {
		return nil, strict.Problems(problems)
	}
	return c, nil
}

// openConfig reads the configuration at startup.
func (s *Server) openConfig() (*config.Config, error) {
	c, data, err := s.loadConfig()
	if err != nil {
		return nil, err
	}
	s.configFile.saw(data, nil)
	s.opened = c
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.use(c)
	s.reloads = newReloads(s.registry)
	s.noteReload(c, nil)
	return c, nil
}

// ConfigStatus describes the configuration in use.
type ConfigStatus struct {
	File    string    `json:"file,omitempty"` // "": the built-in default
	Hash    string    `json:"hash"`           // equal for equivalent files
	Read    time.Time `json:"read"`           // when the current one was read
	Notes   int       `json:"notes,omitempty"`
	Problem string    `json:"problem,omitempty"` // why the current file content is not in use
}

// reloads holds the metrics of configuration reloads.
type reloads struct {
	ok   prometheus.Gauge
	at   prometheus.Gauge
	hash *prometheus.GaugeVec
}

func newReloads(reg prometheus.Registerer) *reloads {
	r := &reloads{
		ok:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "grapevine_config_last_reload_successful", Help: "1 when the last reading of the configuration succeeded."}),
		at:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "grapevine_config_last_reload_success_timestamp_seconds", Help: "When the configuration in use was read."}),
		hash: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "grapevine_config_hash", Help: "1 for the hash of the configuration in use."}, []string{"hash"}),
	}
	reg.MustRegister(r.ok, r.at, r.hash)
	return r
}

func (r *reloads) done(c *config.Config, err error) {
	if err != nil {
		r.ok.Set(0)
		return
	}
	r.ok.Set(1)
	r.at.Set(float64(time.Now().Unix()))
	r.hash.Reset()
	r.hash.WithLabelValues(c.Hash()).Set(1)
}

// Reload reloads configuration, models and federation secrets. On error the old ones remain in use.
func (s *Server) Reload(context.Context) error {
	if err := s.engineKey.read(s.o.EngineKeyFile); err != nil {
		return err
	}
	if s.o.EngineKeyFile != "" {
		for _, ep := range s.pool.Snapshot().Endpoints {
			s.served.Recheck(ep.ID)
		}
	}
	if err := s.reloadConfig(false); err != nil {
		return err
	}
	s.modelFiles.source.Retry()
	s.models.Registry().Reload()
	return s.federation.Reload()
}

// discover opens the endpoint source. The source or file of the options takes precedence over the
// file named in the configuration.
func (s *Server) discover(c *config.Config) (discovery.Source, error) {
	watch := s.dog.Loop("endpoint list").Within(longWork)
	update := func(f discovery.Found) {
		watch.Working()
		defer watch.Waiting()
		s.onFound(f)
	}
	sink := discovery.Sink{Update: update, Registerer: s.registry, Log: s.o.Log, Writes: func() bool { return s.Rank() == 0 }}
	if s.o.Source != nil {
		return s.o.Source(sink)
	}
	o := discovery.FileOptions{Path: s.o.Endpoints, Sink: sink}
	if d := c.Discovery; o.Path == "" && d != nil {
		o.Path = d.Path
		if !d.Watch {
			o.NoWatch, o.Poll = true, math.MaxInt64
		}
	}
	if o.Path == "" {
		return nil, errNoEndpoints
	}
	f, err := discovery.OpenFile(o)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// onFound applies an update of the endpoint source.
func (s *Server) onFound(f discovery.Found) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.lists.use(f)
	s.applyFound(f)
}

// applyFound applies endpoints, and their objectives and models unless the configuration defines
// them. The caller holds reloading.
func (s *Server) applyFound(f discovery.Found) {
	s.found, s.specs = f.Names, f.Specs
	c := s.config.Load()
	if err := s.scheduler.SetRules(s.rules(c)); err != nil {
		s.o.Log.Error("names of the event source rejected", "error", err)
	}
	s.use(c)
	s.pool.Set(completed(s.specs, c))
}

// completed adds the configuration's event and metrics settings to endpoints without their own.
func completed(specs []endpoint.Spec, c *config.Config) []endpoint.Spec {
	m := c.Metrics
	if c.Producer.Events == (endpoint.Events{}) && m.Port == 0 {
		return specs
	}
	out := slices.Clone(specs)
	for i := range out {
		e := &out[i]
		if e.Events == (endpoint.Events{}) {
			e.Events = c.Producer.Events
		}
		if e.Metrics == "" && m.Port > 0 {
			at := netip.AddrPortFrom(e.Addr.Addr(), uint16(m.Port))
			e.Metrics = cmp.Or(m.Scheme, "http") + "://" + at.String() + "/" + strings.TrimPrefix(cmp.Or(m.Path, "metrics"), "/")
		}
	}
	return out
}

// rules returns the rules of c, with names from the source as fallback. The caller holds reloading.
func (s *Server) rules(c *config.Config) *picker.Rules {
	r := *c.Rules
	r.Names = c.Rules.Names.Over(s.found)
	return &r
}

// reloadConfig rereads the configuration and applies it as a whole or not at all. With changed, it
// does nothing if the file's content is the same as at the last read, valid or not.
func (s *Server) reloadConfig(changed bool) error {
	s.loading.Lock() // compiling a plugin's module takes up to a second: updates of endpoints do not wait for that
	c, data, err := s.loadConfig()
	same := changed && s.configFile.same(data, err)
	s.configFile.saw(data, err)
	s.reloading.Lock()
	s.loading.Unlock()
	defer s.reloading.Unlock()
	if same {
		return nil
	}
	if err == nil {
		c.Continue(s.config.Load())
		err = s.scheduler.SetRules(s.rules(c))
	}
	s.noteReload(c, err)
	if err != nil {
		return err
	}
	s.warnOfRestart(c)
	s.queue(s.config.Load(), c)
	s.use(c)
	s.pool.Set(completed(s.specs, c))
	s.size(c)
	s.refresh()
	s.o.Log.Info("configuration read", "hash", c.Hash(), "notes", len(c.Notes))
	return nil
}

// warnOfRestart logs the changes in c that require a restart.
func (s *Server) warnOfRestart(c *config.Config) {
	old := s.opened
	if o, n := old.Metrics, c.Metrics; o.Scheme != n.Scheme || o.Path != n.Path || o.TLS != n.TLS {
		s.o.Log.Warn("another scheme or path of metrics pages takes effect after a restart", "scheme", n.Scheme, "path", n.Path)
	}
	var before, after plugin.FileDiscovery
	if old.Discovery != nil {
		before = *old.Discovery
	}
	if c.Discovery != nil {
		after = *c.Discovery
	}
	if s.o.Endpoints == "" && s.o.Source == nil && before != after {
		s.o.Log.Warn("a different endpoints file takes effect after a restart", "path", after.Path)
	}
}

// noteReload updates metrics and status after a reload. The caller holds reloading.
func (s *Server) noteReload(c *config.Config, err error) {
	s.reloads.done(c, err)
	st := &s.configStatus
	st.File, st.Problem = s.o.Config, ""
	if err != nil {
		st.Problem = err.Error()
		return
	}
	st.Hash, st.Read, st.Notes = c.Hash(), time.Now(), len(c.Notes)
}

// use applies c outside the scheduler. The caller holds reloading.
func (s *Server) use(c *config.Config) {
	s.config.Store(c)
	s.gaugePace.Store(int64(gaugePace(c.GaugeAge, s.rules(c).Names.Objectives)))
}

// queue applies the flow control settings of c. Waiting requests keep their position while the
// settings are equivalent.
func (s *Server) queue(old, c *config.Config) {
	if old == nil || old.Hash() != c.Hash() {
		g := s.waitRules(c)
		s.gate.Configure(g)
		s.warnShortWait(g)
	}
}

// warnShortWait warns of queue times longer than the proxy's timeout.
func (s *Server) warnShortWait(g *gate.Config) {
	if g == nil {
		return
	}
	most := extproc.LongestWait(s.o.MessageTimeout, s.o.MaxMessageTimeout)
	if ttl := g.Queue().TTL; ttl > most {
		s.o.Log.Warn("the proxy's message timeout ends before defaultRequestTTL when it withholds bodies: see --max-message-timeout", "wait", most, "ttl", ttl)
	}
}

// waitRules returns the queue settings. Bodies of waiting requests may use at most three quarters
// of the memory for bodies, because arriving requests need space too. Otherwise a full queue would
// look like a process out of memory.
func (s *Server) waitRules(c *config.Config) *gate.Config {
	g := c.Flow.Gate()
	if g == nil || s.budget.Limit() <= 0 {
		return g
	}
	queue, most := g.Queue, s.budget.Share(budget.Bodies)/4*3
	g.Queue = func() rules.Options {
		o := queue()
		if o.MaxBytes == 0 || o.MaxBytes > most {
			o.MaxBytes = most
		}
		return o
	}
	return g
}

// size sets every endpoint's capacity in the approximate index, as configured by c.
func (s *Server) size(c *config.Config) {
	p := c.Producer
	s.prefixes.SetSizing(prefix.Sizing{Blocks: p.BlocksPerEP, BlockTokens: p.BlockTokens, Fixed: p.FixedCapacity}, s.pool.Snapshot().Endpoints)
}

// refresh rereads gauges that may be too old for the saturation detector.
func (s *Server) refresh() {
	if s.gaugePace.Load() == 0 {
		return
	}
	for _, ep := range s.pool.Snapshot().Endpoints {
		s.scrape.RefreshNow(ep)
	}
}

// watchConfig reloads the configuration when its file changes, until ctx ends.
func (s *Server) watchConfig(ctx context.Context) {
	discovery.Watch(ctx, s.o.Config, discovery.WatchOptions{Log: s.o.Log}, func() {
		if err := s.reloadConfig(true); err != nil {
			s.o.Log.Error("configuration rejected, keeping the previous one", "error", err)
		}
	})
}

// configFile is the content of the configuration file at the last read, valid or not.
type configFile struct {
	data []byte
	err  error // read error
}

func (f *configFile) saw(data []byte, err error) {
	f.data, f.err = data, nil
	if data == nil {
		f.err = err
	}
}

func (f *configFile) same(data []byte, err error) bool {
	if data == nil || f.err != nil {
		return data == nil && f.err != nil && err.Error() == f.err.Error()
	}
	return bytes.Equal(data, f.data)
}

// gaugePace returns the required interval between readings of gauges regardless of load. If
// requests may be rejected for saturation, gauges must be as recent as the detector requires. 0: no
// requirement.
func gaugePace(age time.Duration, objectives map[string]int) time.Duration {
	for _, p := range objectives {
		if p < 0 {
			return age / 2
		}
	}
	return 0
}

// profile sets the rendering profile of an endpoint's engine. The engine's type and version may
// become known after the endpoint.
func (s *Server) profile(ep *endpoint.Endpoint) {
	if s.pool.Snapshot().ByID(int(ep.ID)) == nil {
		return // removed
	}
	kind := ep.Engine
	if kind == endpoint.EngineUnknown {
		kind = ep.Gauges().Engine
	}
	s.profiles.Set(ep.ID, prompt.ProfileOf(kind.String(), s.served.Version(ep.ID)))
}

// scrapeOptions returns poller options that keep gauges as recent as the configuration requires.
func (s *Server) scrapeOptions() (scrape.Options, error) {
	o := scrape.Options{
		Slow: s.o.ScrapeSlow, Fast: s.o.ScrapeFast, Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("metrics pages"),
		OnPage: func(ep *endpoint.Endpoint, p scrape.Page) {
			s.profile(ep)
			s.load.Sampled(ep)
			s.pool.LearnLatency(ep, p.Latency, monotime.Now())
			s.prefixes.Sized(ep, p.Blocks, p.BlockSize)
			s.prefixes.Counted(ep, prefix.Reused{Tokens: p.HitTokens, Counts: p.Counts, Uncached: p.Uncached})
		},
		OnRead: s.onRead, OnRestart: s.onRestart,
	}
	m := s.config.Load().Metrics
	o.Scheme, o.Path = m.Scheme, m.Path
	var err error
	if o.TLS, err = m.TLS.Config(); err != nil {
		return o, err
	}
	if m.Scheme == "https" && m.Port == 0 {
		s.engineTLS = o.TLS
	}
	o.Dialects = func() *scrape.Dialects { return s.config.Load().Metrics.Dialects }
	o.Pace = func() time.Duration { return time.Duration(s.gaugePace.Load()) }
	o.Demand = func(ep *endpoint.Endpoint) bool { return s.gaugePace.Load() > 0 || scrape.NearSaturation(ep) }
	return o, nil
}
