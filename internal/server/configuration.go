package server

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/strict"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/plugin"
	"github.com/grapevine-epp/grapevine/picker/programs"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// configOptions are the source of a configuration, and what its settings are checked against.
type configOptions struct {
	File    string // "": the default profile
	Text    string // instead of a file; "": none
	Plugins plugin.Table
	Engines EngineOptions
	// OwnEndpoints means that the configuration's endpoints file is not used.
	OwnEndpoints                      bool
	MessageTimeout, MaxMessageTimeout time.Duration // of the proxy
	Budget                            *budget.Budget
	Pool                              *endpoint.Pool // gets the endpoints, completed by the configuration
	Registry                          prometheus.Registerer
	Log                               *slog.Logger
}

// configUsers are the parts that change with the configuration.
type configUsers struct {
	SetRules func(*picker.Rules) error // of decisions; an error keeps the previous rules
	Queue    func(*gate.Config)
	Programs func(*programs.Config)
	Sizing   func(prefix.Sizing, []*endpoint.Endpoint) // of the approximate index
	Refresh  func(*endpoint.Endpoint)                  // rereads the metrics page
}

// configuration is the configuration in use, with the endpoints and names that complete it. It is
// safe for concurrent use.
type configuration struct {
	o      configOptions
	users  configUsers // see connect, which is called before the first reload and the first endpoints
	inUse  atomic.Pointer[config.Config]
	opened *config.Config // at startup; some settings apply until exit
	pace   atomic.Int64   // nanoseconds; see gaugePace

	loading sync.Mutex // guards file: one reading at a time; locked before mu
	file    configFile

	mu      sync.Mutex      // guards the next fields, and keeps rules, endpoints and configuration consistent
	found   request.Names   // objectives and models from the endpoint source
	specs   []endpoint.Spec // endpoints from the source
	status  ConfigStatus
	reloads *reloads
}

// openConfiguration reads the configuration at startup.
func openConfiguration(o configOptions) (*configuration, error) {
	f := &configuration{o: o}
	c, data, err := f.load()
	if err != nil {
		return nil, err
	}
	f.file.saw(data, nil)
	f.opened, f.reloads = c, newReloads(o.Registry)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use(c)
	f.note(c, nil)
	return f, nil
}

// connect names the parts that the configuration in use applies to from now on.
func (f *configuration) connect(users configUsers) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users = users
	c := f.current()
	f.size(c)
	users.Queue(f.waitRules(c))
	users.Programs(c.Producer.Programs)
}

// load reads the configuration named by the options.
func (f *configuration) load() (c *config.Config, data []byte, err error) {
	if f.o.Text != "" {
		c, err = parseConfig("--config-text", []byte(f.o.Text), f.o.Plugins)
	} else {
		c, data, err = loadConfig(f.o.File, f.o.Plugins)
	}
	if err == nil {
		f.o.Engines.apply(c)
	}
	return c, data, err
}

// current returns the configuration in use.
func (f *configuration) current() *config.Config { return f.inUse.Load() }

// gaugePace returns how often gauges must be read regardless of load, 0 for no requirement.
func (f *configuration) gaugePace() time.Duration { return time.Duration(f.pace.Load()) }

// report returns the status of the configuration.
func (f *configuration) report() ConfigStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

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

func parseConfig(name string, data []byte, table plugin.Table) (*config.Config, error) {
	c, problems := config.Parse(name, data, config.Options{Table: table})
	if len(problems) > 0 {
		return nil, strict.Problems(problems)
	}
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

// apply uses endpoints, and their objectives and models unless the configuration defines
// them. The caller holds mu.
func (f *configuration) apply(found discovery.Found) {
	f.found, f.specs = found.Names, found.Specs
	c := f.current()
	if err := f.users.SetRules(f.rules(c)); err != nil {
		f.o.Log.Error("names of the event source rejected", "error", err)
	}
	f.use(c)
	f.o.Pool.Set(completed(f.specs, c))
}

// completed adds the configuration's event and metrics settings to endpoints without their own.
func completed(specs []endpoint.Spec, c *config.Config) []endpoint.Spec {
	m := c.Metrics
	if c.Producer.Events == (endpoint.Events{}) && m.Port == 0 && !m.ByLabel {
		return specs
	}
	out := slices.Clone(specs)
	for i := range out {
		e := &out[i]
		if e.Events == (endpoint.Events{}) {
			e.Events = c.Producer.Events
		}
		if e.Metrics != "" {
			continue
		}
		at := netip.AddrPortFrom(e.Addr.Addr(), uint16(cmp.Or(m.Port, int(e.Addr.Port())))).String()
		elsewhere := m.Port > 0
		if host := e.Labels[endpoint.LabelMetricsAddress]; m.ByLabel && host != "" {
			at, elsewhere = net.JoinHostPort(host, cmp.Or(e.Labels[endpoint.LabelMetricsPort], strconv.Itoa(cmp.Or(m.Port, int(e.Addr.Port()))))), true
		}
		if elsewhere {
			e.Metrics = cmp.Or(m.Scheme, "http") + "://" + at + "/" + strings.TrimPrefix(cmp.Or(m.Path, "metrics"), "/")
		}
	}
	return out
}

// rules returns the rules of c, with names from the source as fallback. The caller holds mu.
func (f *configuration) rules(c *config.Config) *picker.Rules {
	r := *c.Rules
	r.Names = c.Rules.Names.Over(f.found)
	return &r
}

// reload rereads the configuration and applies it as a whole or not at all. With changed, it
// does nothing if the file's content is the same as at the last read, valid or not.
func (f *configuration) reload(changed bool) error {
	f.loading.Lock() // compiling a plugin's module takes up to a second: updates of endpoints do not wait for that
	c, data, err := f.load()
	same := changed && f.file.same(data, err)
	f.file.saw(data, err)
	f.mu.Lock()
	f.loading.Unlock()
	defer f.mu.Unlock()
	if same {
		return nil
	}
	if err == nil {
		c.Continue(f.current())
		err = f.users.SetRules(f.rules(c))
	}
	f.note(c, err)
	if err != nil {
		return err
	}
	f.warnOfRestart(c)
	f.queue(f.current(), c)
	f.use(c)
	f.o.Pool.Set(completed(f.specs, c))
	f.size(c)
	f.refresh()
	f.o.Log.Info("configuration read", "hash", c.Hash(), "notes", len(c.Notes))
	return nil
}

// warnOfRestart logs the changes in c that require a restart.
func (f *configuration) warnOfRestart(c *config.Config) {
	old := f.opened
	if o, n := old.Metrics, c.Metrics; o.Scheme != n.Scheme || o.Path != n.Path || o.TLS != n.TLS {
		f.o.Log.Warn("another scheme or path of metrics pages takes effect after a restart", "scheme", n.Scheme, "path", n.Path)
	}
	var before, after plugin.FileDiscovery
	if old.Discovery != nil {
		before = *old.Discovery
	}
	if c.Discovery != nil {
		after = *c.Discovery
	}
	if !f.o.OwnEndpoints && before != after {
		f.o.Log.Warn("a different endpoints file takes effect after a restart", "path", after.Path)
	}
}

// note updates metrics and status after a reload. The caller holds mu.
func (f *configuration) note(c *config.Config, err error) {
	f.reloads.done(c, err)
	st := &f.status
	st.File, st.Problem = f.o.File, ""
	if err != nil {
		st.Problem = err.Error()
		return
	}
	st.Hash, st.Read, st.Notes = c.Hash(), time.Now(), len(c.Notes)
}

// use applies c outside the scheduler. The caller holds mu.
func (f *configuration) use(c *config.Config) {
	f.inUse.Store(c)
	f.pace.Store(int64(gaugePace(c.GaugeAge, f.rules(c).Names.Objectives)))
}

// queue applies the flow control settings of c. Waiting requests keep their position while the
// settings are equivalent.
func (f *configuration) queue(old, c *config.Config) {
	if old == nil || old.Hash() != c.Hash() {
		g := f.waitRules(c)
		f.users.Queue(g)
		f.users.Programs(c.Producer.Programs)
		f.warnShortWait(g)
	}
}

// warnShortWait warns of queue times longer than the proxy's timeout.
func (f *configuration) warnShortWait(g *gate.Config) {
	if g == nil {
		return
	}
	most := extproc.LongestWait(f.o.MessageTimeout, f.o.MaxMessageTimeout)
	if ttl := g.Queue().TTL; ttl > most {
		f.o.Log.Warn("the proxy's message timeout ends before defaultRequestTTL when it withholds bodies: see --max-message-timeout", "wait", most, "ttl", ttl)
	}
}

// waitRules returns the queue settings. Bodies of waiting requests may use at most three quarters
// of the memory for bodies, because arriving requests need space too. Otherwise a full queue would
// look like a process out of memory.
func (f *configuration) waitRules(c *config.Config) *gate.Config {
	g := c.Flow.Gate()
	if g == nil || f.o.Budget.Limit() <= 0 {
		return g
	}
	queue, most := g.Queue, f.o.Budget.Share(budget.Bodies)/4*3
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
func (f *configuration) size(c *config.Config) {
	p := c.Producer
	f.users.Sizing(prefix.Sizing{Blocks: p.BlocksPerEP, BlockTokens: p.BlockTokens, Fixed: p.FixedCapacity}, f.o.Pool.Snapshot().Endpoints)
}

// refresh rereads gauges that may be too old for the saturation detector.
func (f *configuration) refresh() {
	if f.gaugePace() == 0 {
		return
	}
	for _, ep := range f.o.Pool.Snapshot().Endpoints {
		f.users.Refresh(ep)
	}
}

// watch reloads the configuration when its file changes, until ctx ends.
func (f *configuration) watch(ctx context.Context) {
	discovery.Watch(ctx, f.o.File, discovery.WatchOptions{Log: f.o.Log}, func() {
		if err := f.reload(true); err != nil {
			f.o.Log.Error("configuration rejected, keeping the previous one", "error", err)
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
