package pools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/cluster/poolbus"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/server"
	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// LabelSuffix is added to the group's name, so that replicas with several pools and replicas with
// one refuse each other.
const LabelSuffix = "+pools"

// Finder finds pools while the process runs. Its methods are safe for concurrent use.
type Finder interface {
	// Pools returns the pools that are to be served, or false if they are not known yet.
	Pools() (list []Found, known bool)
	// Changed signals that Pools may return another list.
	Changed() <-chan struct{}
	// Problem returns why the list is not current, or "".
	Problem() string
	Close()
}

// Found is a pool that a Finder has found.
type Found struct {
	Name    string
	Port    int    // of its ext_proc listener
	Problem string // why it cannot be served, "" if it can
}

// Options configure a Server. File or Finder is required.
type Options struct {
	// Process holds the settings of the process, and the settings of each pool that its Entry does not
	// change. Listen provides the host of all ext_proc listeners.
	Process server.Options
	File    string // pools file; "": none
	Finder  Finder // nil: the pools are those of File
	// Source returns the source of endpoints of the InferencePool with that name; nil: pools need an
	// endpoints file.
	Source func(pool string) (discovery.Opener, error)
	// Grace is how long a pool may be missing before it is removed; 0: 10 s with a Finder, and none for
	// pools of the file.
	Grace   time.Duration
	AnyPort bool // pools without a port take a free one
}

// Server serves several pools until Stop.
type Server struct {
	o         Options
	self      cluster.Member
	registry  *prometheus.Registry
	budget    *budget.Budget
	listeners *budget.Listeners
	bus       *poolbus.Bus // nil: no group
	readiness *listen.Readiness
	health    *extproc.Server // nil: none
	admin     *admin.Server
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	reread    chan struct{}

	mu       sync.Mutex
	pools    []*pool // wanted ones and those that drain, by name
	n        int     // into how many parts memory is divided
	entries  []Entry // of the file
	problem  string  // of the file
	missing  map[string]time.Time
	known    bool // the pools of the start are known
	gated    bool // the pools of the start have been waited for
	draining bool
	deadline time.Time // of a running drain of the process
}

// Refuse returns an error for settings that have no effect or no meaning with several pools.
func Refuse(o *server.Options) error {
	for name, given := range map[string]bool{
		"--xds-listen": o.XDS.Listen != "", "--federation-config": o.Federation.Link != nil, "--metrics-compat": o.MetricsCompat,
		"--pick-listen": o.PickListen != "", "--pick-ends": o.PickEnds != "", "--events-listen": len(o.EventsListen) > 0,
		"--flight-trace": o.FlightTrace > 0, "--endpoints": o.Endpoints != "", "--model": len(o.Models) > 0,
	} {
		if given {
			return fmt.Errorf("%s cannot be used with several pools", name)
		}
	}
	return nil
}

// Open opens the process's listeners and joins the group, and starts to open the pools.
func Open(o Options) (*Server, error) {
	if o.Process.Log == nil {
		o.Process.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.Process.Defaults(); err != nil {
		return nil, err
	}
	if err := Refuse(&o.Process); err != nil {
		return nil, err
	}
	s := &Server{o: o, self: cluster.NewMember(o.Process.Name, o.Process.Version), registry: prometheus.NewRegistry(), readiness: listen.NewReadiness(), reread: make(chan struct{}, 1), missing: map[string]time.Time{}, n: 1}
	s.self.Zone = o.Process.Zone
	if o.File != "" {
		var err error
		if s.entries, err = ReadFile(o.File); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	o := &s.o.Process
	limit := o.Memory
	if limit == 0 {
		limit, _ = budget.Memory()
	}
	s.budget = budget.New(limit)
	s.budget.Apply()
	s.listeners = budget.NewListeners(s.budget, s.registry)
	server.RegisterRuntime(s.registry)
	s.registry.MustRegister(s.budget, collector{s})
	if o.LogWriter != nil {
		if err := o.LogWriter.Register(s.registry); err != nil {
			return err
		}
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	s.apply()
	if err := s.openAdmin(); err != nil {
		return err
	}
	if o.Health != "" && o.Health != "-" {
		if s.health, err = extproc.OpenHealth(extproc.Listen{HealthAddress: o.Health, Readiness: s.readiness, Listeners: s.listeners}, o.Log); err != nil {
			return err
		}
	}
	s.wg.Go(func() { s.watch(ctx) })
	s.wg.Go(func() { s.watchReadiness(ctx) })
	if s.o.File != "" {
		s.wg.Go(func() { discovery.Watch(ctx, s.o.File, discovery.WatchOptions{Log: o.Log}, s.readFile) })
	}
	o.Log.Info("replica started", "name", o.Name, "version", o.Version, "admin", s.admin.Addr().String())
	return nil
}

// join opens the connection to the other replicas.
func (s *Server) join(ctx context.Context) error {
	c := s.o.Process.Cluster
	if !c.Enabled() {
		return nil
	}
	c.Label += LabelSuffix
	bus, err := c.OpenBus(s.self, func(l net.Listener) net.Listener { return s.listeners.Limit("replicas", 8, l) }, s.o.Process.Log)
	if err != nil {
		return err
	}
	b := poolbus.New(poolbus.Options{Bus: bus})
	if err := b.Open(ctx); err != nil {
		return fmt.Errorf("pools: cluster: %w", err)
	}
	s.bus = b
	return s.registry.Register(b)
}

// openAdmin serves the pages of the process and of all pools.
func (s *Server) openAdmin() error {
	o := &s.o.Process
	secure, err := o.TLS.Config(o.Log)
	if err != nil {
		return err
	}
	if secure != nil {
		s.registry.MustRegister(listen.WatchExpiry(secure, o.Log))
	}
	s.admin, err = admin.Open(admin.Options{
		Bind: o.Admin, Control: o.Control, Token: o.ControlToken, TLS: secure, Gatherer: s, Registerer: s.registry,
		Ready: s.checks, Stalled: s.stalled, Status: func() any { return s.Status() }, Reload: s.Reload, LogLevels: o.Levels(),
		Pools: &admin.Pools{Page: s.page, Lines: s.lines}, Budget: s.budget, Listeners: s.listeners, Log: o.Log,
	})
	return err
}

// readFile reads the pools file again. An unreadable file changes nothing.
func (s *Server) readFile() {
	entries, err := ReadFile(s.o.File)
	s.mu.Lock()
	was := s.problem
	if s.problem = ""; err != nil {
		s.problem = err.Error()
	} else {
		s.entries = entries
	}
	now := s.problem
	s.mu.Unlock()
	if now != "" && now != was {
		s.o.Process.Log.Error("pools file refused, keeping the current pools", "error", now)
	}
	s.soon()
}

func (s *Server) soon() {
	select {
	case s.reread <- struct{}{}:
	default:
	}
}

// watch applies changes of the wanted pools.
func (s *Server) watch(ctx context.Context) {
	var changed <-chan struct{}
	if s.o.Finder != nil {
		changed = s.o.Finder.Changed()
	}
	tick := time.NewTicker(time.Second) // for pools whose grace has ended, and for those that have drained
	defer tick.Stop()
	for {
		s.apply()
		select {
		case <-ctx.Done():
			return
		case <-s.reread:
		case <-changed:
		case <-tick.C:
		}
	}
}

// wanted returns the pools that are to be served, by name. The caller holds s.mu.
func (s *Server) wanted() (list []Entry, known bool) {
	if s.o.Finder == nil {
		list = slices.Clone(s.entries)
		for i := range list {
			if e := &list[i]; e.Port == 0 && e.Problem == "" && !s.o.AnyPort {
				e.add("port is missing: each pool has its own, which its InferencePool's endpointPickerRef or the proxy names")
			}
		}
		return list, true
	}
	found, known := s.o.Finder.Pools()
	for _, f := range found {
		e := Entry{Name: f.Name}
		for i := range s.entries {
			if s.entries[i].Name == f.Name {
				e = s.entries[i]
			}
		}
		if e.Port != 0 && e.Port != f.Port {
			e.add(fmt.Sprintf("%s states port %d, the pool's endpointPickerRef port %d", s.o.File, e.Port, f.Port))
		}
		e.Port = f.Port
		if f.Problem != "" {
			e.add(f.Problem)
		}
		list = append(list, e)
	}
	return list, known
}

// apply opens pools that are wanted and ends those that are not.
func (s *Server) apply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	list, known := s.wanted()
	s.known = s.known || known
	now := time.Now()
	var kept []*pool
	have := map[string]*pool{}
	for _, p := range s.pools {
		select {
		case <-p.done:
			continue
		default:
		}
		kept = append(kept, p)
		i := slices.IndexFunc(list, func(e Entry) bool { return e.Name == p.entry.Name })
		switch {
		case p.over():
			if old := have[p.entry.Name]; old == nil || old.over() { // the last one of this name
				have[p.entry.Name] = p
			}
			continue
		case i >= 0 && list[i].equal(&p.entry):
			delete(s.missing, p.entry.Name)
			have[p.entry.Name] = p
			continue
		case i < 0 && (!known || s.spared(p.entry.Name, now)):
			have[p.entry.Name] = p
			continue
		case i < 0:
			s.o.Process.Log.Info("pool was removed from the configuration, draining it", "pool", p.entry.Name)
			delete(s.missing, p.entry.Name)
		default:
			s.o.Process.Log.Info("settings of the pool have changed, opening it again", "pool", p.entry.Name)
		}
		p.cancel()
		have[p.entry.Name] = p
	}
	s.pools = kept
	s.divide(max(len(list), len(have)))
	for _, e := range list {
		if old := have[e.Name]; old == nil || old.over() {
			s.start(e, old)
		}
	}
	slices.SortStableFunc(s.pools, func(a, b *pool) int { return strings.Compare(a.entry.Name, b.entry.Name) })
}

// spared reports whether a missing pool is served for a while, because its deletion may be an error
// of what was read. The caller holds s.mu.
func (s *Server) spared(name string, now time.Time) bool {
	grace := s.o.Grace
	if grace == 0 && s.o.Finder != nil {
		grace = 10 * time.Second
	}
	since, missing := s.missing[name]
	if !missing {
		since = now
		s.missing[name] = since
	}
	return now.Sub(since) < grace
}

// divide divides the memory into n parts. The caller holds s.mu.
func (s *Server) divide(n int) {
	if n = max(n, 1); n == s.n {
		return
	}
	s.n = n
	for _, p := range s.pools {
		p.budget.SetParts(n)
	}
}

// start opens a pool after old, which has the same name. The caller holds s.mu.
func (s *Server) start(e Entry, old *pool) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pool{s: s, entry: e, before: old, budget: s.budget.Part(s.n), cancel: cancel, stopping: ctx, done: make(chan struct{})}
	s.pools = append(s.pools, p)
	go p.run()
}

// parts returns into how many parts the process's resources are divided.
func (s *Server) parts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// startOf returns from when a pool's time to become ready counts. For the pools of the start, this is
// the start of the process.
func (s *Server) startOf() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gated {
		return time.Now()
	}
	return s.o.Process.Started
}

// drain returns how long a pool may take to end.
func (s *Server) drain() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline.IsZero() {
		return s.o.Process.Drain
	}
	return time.Until(s.deadline)
}

// list returns all pools, by name.
func (s *Server) list() []*pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pools)
}

// watchReadiness sets the health state of the process.
func (s *Server) watchReadiness(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, gated := s.ready()
		s.readiness.SetStalled(len(s.stalled()) > 0)
		s.readiness.Set(ready)
		if gated {
			tick.Reset(250 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ready reports whether the process accepts requests: the pools of the start have been waited for,
// and one pool at least is ready.
func (s *Server) ready() (ready, gated bool) {
	one, all := false, true
	for _, p := range s.list() {
		r, started := p.ready()
		one, all = one || r, all && (r || started)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gated = s.gated || s.known && all || time.Since(s.o.Process.Started) > s.o.Process.ReadyTimeout
	return s.gated && one && !s.draining, s.gated
}

// stalled returns the names of stalled loops of all pools.
func (s *Server) stalled() (names []string) {
	for _, p := range s.list() {
		if srv := p.server(); srv != nil {
			for _, name := range srv.Stalled() {
				names = append(names, p.entry.Name+": "+name)
			}
		}
	}
	return names
}

// Reload reads the pools file and the files of all pools again.
func (s *Server) Reload(ctx context.Context) error {
	if s.o.File != "" {
		s.readFile()
	}
	var errs []error
	for _, p := range s.list() {
		if srv := p.server(); srv != nil {
			if err := srv.Reload(ctx); err != nil {
				errs = append(errs, fmt.Errorf("pool %s: %w", p.entry.Name, err))
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != "" {
		errs = append(errs, errors.New(s.problem))
	}
	return errors.Join(errs...)
}

// SetKeys changes the group's keys: see server.Server.SetKeys.
func (s *Server) SetKeys(keys [][]byte) error {
	if s.bus == nil {
		return errors.New("pools: this replica is in no group")
	}
	return s.bus.SetKeys(keys)
}

// AdminAddr returns the address of the administration listener.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }

// Drain drains all pools at once, and returns when they have ended or ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	if end, ok := ctx.Deadline(); ok {
		s.deadline = end
	}
	s.mu.Unlock()
	s.readiness.Set(false)
	list := s.list()
	for _, p := range list {
		p.cancel()
	}
	for _, p := range list {
		select {
		case <-p.done:
		case <-ctx.Done():
			return
		}
	}
}

// Stop drains all pools, stops everything and waits.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain(ctx)
	s.cancel()
	s.wg.Wait()
	for _, p := range s.list() {
		<-p.done
	}
	var errs []error
	if s.bus != nil {
		if err := s.bus.Leave(ctx); err != nil {
			s.o.Process.Log.Warn("could not announce leave", "error", err)
		}
		errs = append(errs, s.bus.Close())
	}
	if s.o.Finder != nil {
		s.o.Finder.Close()
	}
	if s.health != nil {
		errs = append(errs, s.health.Stop(ctx))
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
	}
	return errors.Join(errs...)
}
