package server

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/history"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/monitor"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/scrape"
	"github.com/grapevine-epp/grapevine/picker/served"
	"github.com/grapevine-epp/grapevine/picker/sessions"
	"github.com/grapevine-epp/grapevine/picker/sizing"
	"github.com/grapevine-epp/grapevine/picker/warmup"
)

// Server is one running replica: the parts of the architecture drawing, from the bottom to the top.
type Server struct {
	o         Options
	registry  *prometheus.Registry
	budget    *budget.Budget
	listeners *budget.Listeners
	started   time.Time

	configParts
	prefixParts
	pool *endpoint.Pool
	engineParts
	groupParts
	decisionParts
	listenerParts
	diagnosticParts

	draining atomic.Bool
	settled  atomic.Bool // the state has settled once, or ReadyTimeout has passed
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// configParts are the configuration in use and what changes it.
type configParts struct {
	config    atomic.Pointer[config.Config]
	opened    *config.Config // configuration at startup; some settings apply until exit
	gaugePace atomic.Int64   // nanoseconds; see gaugePace
	reloads   *reloads

	loading    sync.Mutex // guards the next field: one reading of the configuration at a time; locked before reloading
	configFile configFile

	reloading    sync.Mutex      // guards the next three fields, and keeps rules, endpoints and configuration consistent
	found        request.Names   // objectives and models from the source
	specs        []endpoint.Spec // endpoints from the source
	configStatus ConfigStatus
}

// prefixParts map prompts to the engines' caches.
type prefixParts struct {
	ownSeed    block.Seed
	hasher     block.Hasher
	index      *indexer.Index
	approx     *approx.Index
	models     *prefix.Models
	modelFiles foundModels
	profiles   prefix.Profiles // rendering profiles of engines
	rendering  *remote.Prober  // nil: rendering probes are off
	prefixes   *prefix.Matcher
}

// engineParts find the pool's endpoints and observe their engines.
type engineParts struct {
	engineKey engineKey
	discovery discovery.Source
	lists     *lists
	finder    *share.Finder
	scrape    *scrape.Poller
	served    *served.Reader // reads engines' model lists
	health    *monitor.Monitor
}

// groupParts share state with the other replicas.
type groupParts struct {
	node          *cluster.Node
	bus           cluster.Bus
	setup         *facts.Setup
	seeds         *facts.Seeds // nil if the seed is derived from a secret or not shared
	share         *share.Index
	xds           *xdsShare
	load          *facts.Load
	queues        *facts.Queues
	costs         *facts.Costs
	hints         *facts.Hints
	peerDecisions *facts.Decisions
}

// decisionParts are the parts that decide about requests.
type decisionParts struct {
	gate       *gate.Gate
	stopQueue  context.CancelFunc // admits all waiting requests; nil before the queue exists
	federation *multicluster.Part // nil: no federation
	blame      health.Prompts
	warmUps    *warmup.Sender
	scheduler  *picker.Scheduler
	signer     *signed.Signer // nil: targets are not signed
	recorder   *recording.Recorder
	chooser    *chooser
}

// listenerParts are the listeners of proxies and operators.
type listenerParts struct {
	readiness   *listen.Readiness
	certificate *listen.Expiry // nil: no TLS
	engineTLS   *tls.Config    // for requests to engines; nil: no TLS
	processor   *extproc.Processor
	extproc     *extproc.Server
	admin       *admin.Server
	pick        *admin.Pick // nil: none
}

// diagnosticParts are the parts that observe this process and its requests.
type diagnosticParts struct {
	tracer   *tracing.Tracer // nil: requests are not traced
	dog      *watchdog.Watchdog
	problems problemWatch
	flight   *flightrecorder.Recorder
	history  *history.Recorder
}

// Open starts a replica. If a part fails to start, Open stops all others.
func Open(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{o: o, registry: prometheus.NewRegistry(), started: o.Started, listenerParts: listenerParts{readiness: listen.NewReadiness()}}
	s.openBudget()
	if o.Shared == nil {
		if err := s.registerProcess(); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.dog = watchdog.New(watchdog.Options{Changed: s.onStall, Log: o.Log})
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	if err := s.engineKey.read(s.o.EngineKeyFile); err != nil {
		return err
	}
	if s.o.TargetsKey != nil {
		if s.signer, err = signed.NewSigner(s.o.TargetsKey, time.Now); err != nil {
			return err
		}
		s.o.Log.Info("prefill targets are signed", "public_key", base64.StdEncoding.EncodeToString(s.signer.Public()))
	}
	s.tracer = tracing.Open(tracing.Options{Service: "grapevine", Instance: s.o.Name, Version: s.o.Version, Registerer: s.registry, Log: s.o.Log})
	s.ownSeed = s.seed()
	s.hasher = block.NewHasher(s.ownSeed)
	s.index = indexer.New(s.indexOptions())
	s.approx = approx.New(approx.Options{Hasher: s.hasher})
	s.pool = endpoint.NewPool(endpoint.PoolOptions{Keep: max(s.o.Keep, 0), Zone: s.o.Zone, RevisionLabels: s.o.RevisionLabels})
	s.finder = share.NewFinder(s.pool, s.o.Trust, s.o.Log)
	s.finder.EngineKey = s.engineKey.get
	sessions := sessions.New(0)
	if s.models, err = prefix.OpenModels(s.o.Models, prefix.ModelsOptions{Hasher: s.hasher, Approx: s.approx, Profiles: &s.profiles, Prompt: prompt.ModelsOptions{
		Log: s.o.Log, Budget: s.budget, Engine: remote.New(remote.Options{Endpoints: s.renderers, Client: s.engineClient(remote.NewClient())}).Render,
	}}); err != nil {
		return err
	}
	if err := s.openModelFiles(); err != nil {
		return err
	}
	c, err := s.openConfig()
	if err != nil {
		return err
	}
	pages, err := s.scrapeOptions()
	if err != nil {
		return err
	}
	if s.scrape, err = scrape.Open(pages); err != nil {
		return err
	}
	if s.served, err = served.Open(served.Options{Pool: s.pool, Client: s.engineClient(served.NewClient()), Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("model lists")}); err != nil {
		return err
	}
	s.recorder = recording.New(s.hasher, ctx.Done(), s.registry)
	if err := s.openShare(ctx, sessions); err != nil {
		return err
	}
	if err := s.listenForEvents(c); err != nil {
		return err
	}
	if err := s.openPicker(sessions); err != nil {
		return err
	}
	if err := s.joinGroup(ctx, sessions); err != nil {
		return err
	}
	if err := s.openRendering(); err != nil {
		return err
	}
	s.registry.MustRegister(newCollector(s), newPDCollector(s), newPluginCollector(s), &s.problems, &s.xds.pace)
	s.pool.Subscribe(s.onChange)
	if s.discovery, err = s.discover(c); err != nil {
		return err
	}
	if err := s.openProcessor(); err != nil { // before the status pages, which read it
		return err
	}
	if err := s.openFlight(); err != nil {
		return err
	}
	s.history = history.New(history.Source{Models: s.scheduler.Outcomes().Models, Waiting: s.waiting})
	if err := s.openAdmin(); err != nil {
		return err
	}
	if err := s.openExtProc(); err != nil {
		return err
	}
	if err := s.openPick(); err != nil {
		return err
	}
	s.wg.Go(func() { s.finder.Run(ctx, s.share.Set) })
	s.wg.Go(s.share.Run)
	if s.o.XDS.Listen != "" || s.o.Cluster.enabled() {
		if err := s.xds.open(ctx); err != nil {
			return err
		}
	}
	s.startBackground(ctx)
	s.o.Log.Info("replica started", "name", s.o.Name, "version", s.o.Version, "ext_proc", s.extproc.Addr().String(), "admin", s.adminAddr())
	return nil
}

// startBackground starts the goroutines that run until the server stops. No goroutine can fail at startup.
func (s *Server) startBackground(ctx context.Context) {
	s.watchLocks()
	s.wg.Go(func() { s.dog.Run(ctx) })
	s.wg.Go(func() { s.watchReadiness(ctx) })
	s.wg.Go(func() { s.watchProblems(ctx) })
	s.wg.Go(func() { s.flight.Run(ctx) })
	s.wg.Go(func() { s.history.Run(ctx) })
	if s.o.Source != nil {
		s.wg.Go(func() { s.lists.run(ctx) })
	}
	if s.o.Cluster.enabled() {
		s.wg.Go(func() { s.publishSetup(ctx) })
	}
	if s.rendering != nil {
		s.wg.Go(func() { s.rendering.Run(ctx) })
	}
	if s.o.Config != "" {
		s.wg.Go(func() { s.watchConfig(ctx) })
	}
	s.wg.Go(func() { s.followModels(ctx) })
	queue, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopQueue = stop
	s.wg.Go(func() { s.gate.Run(queue) })
	if s.federation != nil {
		s.wg.Go(func() { s.federation.Run(ctx) })
		s.wg.Go(func() { s.federation.TrackHotPrompts(ctx) })
	}
}

// openPicker builds the prefix matcher and the scheduler.
func (s *Server) openPicker(sessions *sessions.Table) (err error) {
	o := prefix.Options{
		Index: s.index, Approx: s.approx, Models: s.models, Profiles: &s.profiles, Speculate: s.o.Speculate, FullReport: s.o.FullReport,
		Read: s.share.State, Streams: s.finder.Streams,
		StreamInfo: func(ep *endpoint.Endpoint) prefix.StreamInfo {
			return prefix.StreamInfo{
				Blocks: s.blocks(ep), HasMessages: s.share.Knowledge(ep.ID).Silent > 0, Reports: s.share.Answered(ep.ID),
				Sparse: s.share.Sparse(ep.ID), Narrow: s.share.Narrow(ep.ID),
				TopicMismatch: s.share.TopicMismatch(ep.ID, s.finder.Streams(ep)),
			}
		},
		LastEvent: s.share.LastEvent, VerdictChanged: s.verdictChanged, ProbeTopics: func(ep *endpoint.Endpoint) { s.share.ProbeTopics(s.finder.Streams(ep)) },
		Expect:     func(ep *endpoint.Endpoint, q block.Query) bool { return s.share.Expect(ep.ID, q) },
		Invalidate: func(ep *endpoint.Endpoint) { s.share.Invalidate(ep.ID) },
		Confirm:    func(ep *endpoint.Endpoint) { s.share.Confirm(ep.ID) },
		Wait: func(ep *endpoint.Endpoint, now time.Time) time.Duration {
			l := s.pool.LoadTracker().Load(ep, now)
			return time.Duration(ep.Cost().Wait(&l, now) * float64(time.Second))
		},
		Registerer: s.registry, Log: s.o.Log,
	}
	if s.o.Cluster.enabled() {
		o.Recorded = s.hints.Recorded
	}
	s.prefixes = prefix.New(o)
	if err := s.prefixes.Collect(s.registry, func() []*endpoint.Endpoint { return s.pool.Snapshot().Endpoints }); err != nil {
		return err
	}
	c := s.config.Load()
	s.size(c)
	s.gate.Configure(s.waitRules(c))
	if err := s.openFederation(); err != nil {
		return err
	}
	if s.warmUps, err = warmup.Open(warmup.Options{
		Client: s.engineClient(monitor.NewClient()), Scheme: c.Metrics.Scheme, Budget: s.budget, Registerer: s.registry, Log: s.o.Log,
	}); err != nil {
		return err
	}
	var meter *sizing.Meter
	if s.o.SizeTarget != (sizing.Target{}) {
		meter = sizing.NewMeter(s.pool, s.o.SizeTarget, monotime.Now)
		s.registry.MustRegister(meter)
	}
	s.scheduler, err = picker.New(picker.Options{
		RemoteClusters: s.federation.RemoteClusters(),
		Pool:           s.pool, Rules: c.Rules, Matcher: s.prefixes, Prompts: s.models, Sessions: sessions, Lists: s.served, PlaceUnknown: s.o.PlaceUnknown, RefuseKillers: s.o.RefuseKillers, Blame: &s.blame,
		SampleBodies: s.o.SampleBodies, Continuations: s.o.Continuations, Gate: s.gate, Sizing: meter, Records: s.retention(), WorkTimeout: s.o.WorkTimeout, SlowDecision: s.o.SlowDecision, Slow: s.slowDecision, WarmUps: s.warmUps.WarmUps(), Registerer: s.registry, Log: s.o.Log,
	})
	if err != nil {
		return err
	}
	s.chooser = &chooser{chooserOptions: chooserOptions{
		scheduler: s.scheduler, pool: s.pool, prefixes: s.prefixes, signer: s.signer, recorder: s.recorder, federated: s.federation != nil, log: s.o.Log,
	}}
	if s.o.DecisionHeader {
		s.chooser.decisionID = s.decisionID
	}
	return nil
}

// openAdmin serves metrics, health, status and operator endpoints, unless the process does.
func (s *Server) openAdmin() error {
	if s.o.Shared != nil {
		return nil
	}
	secure, err := s.o.TLS.Config(s.o.Log)
	if err != nil {
		return err
	}
	if secure != nil {
		s.certificate = listen.WatchExpiry(secure, s.o.Log)
		s.registry.MustRegister(s.certificate)
	}
	o := s.pages()
	o.Bind, o.Control, o.Token, o.TLS = s.o.Admin, s.o.Control, s.o.ControlToken, secure
	o.Registerer, o.LogLevels = s.registry, s.o.Levels()
	s.admin, err = admin.Open(o)
	return err
}

// pages returns what the administration listener serves.
func (s *Server) pages() admin.Options {
	return admin.Options{
		Gatherer: s.gatherer(), Ready: s.checks, Stalled: s.dog.Stalled, Status: func() any { return s.Status() },
		History:   func(model string) (any, bool) { return s.history.Show(model) },
		Decisions: s.decisions, Explain: s.explain, Record: s.recorder, Flight: s.flight, Reload: s.Reload, Budget: s.budget, Listeners: s.listeners, Log: s.o.Log,
	}
}

// openProcessor creates the processor of requests. It serves nothing yet.
func (s *Server) openProcessor() (err error) {
	s.processor, err = extproc.New(extproc.Options{
		Chooser: s.chooser, Parse: request.Parse, ParsePrefix: request.ParsePrefix,
		Forms:        func() bool { _, several := s.pool.Snapshot().OnlyBase(); return several },
		Answer:       s.answer,
		IgnoreSubset: s.o.IgnoreSubset, Gateway: s.o.Gateway, Destinations: s.o.Destinations, ReportServed: s.opened.ReportServed,
		MaxBody: s.o.MaxBody, Budget: s.budget, BodyTimeout: s.o.BodyTimeout, MessageTimeout: s.o.MessageTimeout, MaxMessageTimeout: s.o.MaxMessageTimeout, KVTransfer: s.o.KVTransfer, PassControl: s.o.PassControl,
		AllowModeOverride: s.o.AllowModeOverride, FallbackMetadata: s.o.FallbackMetadata,
		Trust:       func() *request.Trust { return s.config.Load().Trust },
		AnswerModel: s.o.AnswerModel, Rewrites: s.scheduler.Rewrites, Tracer: s.tracer,
		Registerer: s.registry, Log: s.o.Log,
	})
	return err
}

// openExtProc opens the ext_proc listener.
func (s *Server) openExtProc() (err error) {
	s.extproc, err = extproc.Open(s.processor, extproc.Listen{Address: s.o.Listen, TLS: s.o.TLS, HealthAddress: s.o.Health, Linger: max(s.o.Linger, 0), Readiness: s.readiness, Listeners: s.listeners})
	return err
}

// gatherer returns the source of the metrics page.
func (s *Server) gatherer() prometheus.Gatherer {
	if !s.o.MetricsCompat {
		return s.registry
	}
	reg := prometheus.NewRegistry()
	var err error
	s.chooser.compat, err = admin.NewCompat(admin.CompatOptions{Pool: s.pool, PoolName: s.o.MetricsPool, Version: s.o.Version, Own: s.registry, Now: monotime.Now}, reg)
	if err != nil {
		s.o.Log.Error("metrics of other pickers are not served", "error", err)
		s.chooser.compat = nil
		return s.registry
	}
	return prometheus.Gatherers{s.registry, reg}
}

// openPick opens the listener for proxies without external processing.
func (s *Server) openPick() (err error) {
	if s.o.PickListen == "" {
		if s.o.PickEnds != "" {
			return errors.New("--pick-ends without --pick-listen")
		}
		return nil
	}
	s.pick, err = admin.OpenPick(admin.PickOptions{
		Bind: s.o.PickListen, Ends: s.o.PickEnds, Token: s.o.PickToken, Expiry: s.o.PickExpiry, Chooser: s.chooser, KVTransfer: s.o.KVTransfer, Control: s.o.PassControl,
		Trust: func() *request.Trust { return s.config.Load().Trust }, Registerer: s.registry, Log: s.o.Log,
		Budget: s.budget, Listeners: s.listeners,
	})
	if err == nil {
		s.o.Log.Info("listening for picks of other proxies", "address", s.pick.Addr().String())
	}
	return err
}

// answer responds to model list requests, unless engines are to.
func (s *Server) answer(method, path string) (status int, body []byte, ok bool) {
	if s.o.PassModels {
		return 0, nil, false
	}
	return served.Answer(s.pool.Snapshot(), method, path, s.started)
}

// onChange handles a change of the pool: event streams, polling, and state to discard.
func (s *Server) onChange(c endpoint.Change) {
	s.prefixes.Joined(c.Added)
	s.scrape.Apply(c)
	s.served.Changed(c)
	s.finder.Changed(c)
	s.share.Set()
	s.share.EngineRestarted(c.Restarted)
	s.load.Restarted(c.Restarted)
	s.load.Joined(slices.Concat(c.Added, c.Restarted))
	s.costs.Joined(c.Added)
	if s.o.Cluster.enabled() { // without a group, nothing would consume it
		s.load.Withdraw(slices.Concat(c.Dropped, c.Restarted))
	}
	for _, ep := range c.Dropped {
		s.index.RemoveEndpoint(ep.ID)
	}
	s.rendering.Reset(slices.Concat(c.Dropped, c.Restarted)) // before Left, so that no findings follow
	s.prefixes.Left(slices.Concat(c.Dropped, c.Restarted))
	for _, ep := range slices.Concat(c.Added, c.Restarted) {
		s.profile(ep)
	}
	s.o.Log.Info("endpoints changed", "endpoints", len(c.Snapshot.Endpoints), "added", len(c.Added), "changed", len(c.Changed), "removed", len(c.Removed), "forgotten", len(c.Dropped), "reborn", len(c.Restarted))
}

// renderers returns the engines that may render a prompt of a model.
func (s *Server) renderers(model string) []string {
	var urls []string
	for _, ep := range s.pool.Snapshot().Endpoints {
		if list, _ := ep.EngineModels(); !ep.Down() && (ep.Listed(model) || list == nil && len(ep.Models) == 0) {
			urls = append(urls, "http://"+ep.Address)
		}
	}
	return urls
}

// source returns the event source of an endpoint.
func (s *Server) source(ep *endpoint.Endpoint) events.EndpointSource {
	return events.EndpointSource{ID: ep.ID, Name: ep.Address, Model: s.models.EventModel(ep), Streams: s.finder.Streams(ep), Pod: ep.Name}
}

// Wait blocks until the listeners have stopped.
func (s *Server) Wait() error { return s.extproc.Wait() }

// Drain announces to proxies that no more requests are accepted, gives them time to notice, and
// waits for open requests, at most until ctx ends.
func (s *Server) Drain(ctx context.Context) {
	if s.draining.Swap(true) {
		return
	}
	s.readiness.Set(false)
	s.o.Log.Info("draining")
	if s.o.Cluster.enabled() {
		s.node.HandOver(ctx)
	}
	s.federation.Leave() // after the hand-over, which shows who else leaves
}

// Stop stops everything and waits. Open requests have until ctx ends. Queued requests proceed in
// order; those still queued shortly before the end are admitted all at once, because they would be
// lost otherwise.
func (s *Server) Stop(ctx context.Context) error {
	drained := s.draining.Swap(true)
	s.stop()
	var errs []error
	if s.extproc != nil {
		late := s.releaseBefore(ctx)
		errs = append(errs, s.extproc.Stop(ctx))
		late.Stop()
	}
	// Leave last: other replicas must count this replica's load until its last request has ended.
	if s.node != nil && s.o.Cluster.enabled() && drained {
		if err := s.node.Leave(ctx); err != nil {
			s.o.Log.Warn("could not announce leave", "error", err)
		}
	}
	if s.stopQueue != nil {
		s.stopQueue()
	}
	s.warmUps.Close()
	if s.xds != nil {
		s.xds.close()
	}
	errs = append(errs, s.federation.Close())
	if s.discovery != nil {
		s.discovery.Close()
	}
	if s.scrape != nil {
		s.scrape.Close()
	}
	if s.served != nil {
		s.served.Close()
	}
	if s.health != nil {
		s.health.Close()
	}
	if s.share != nil {
		errs = append(errs, s.share.Close())
	}
	if s.node != nil {
		errs = append(errs, s.node.Close())
	}
	if s.pick != nil {
		errs = append(errs, s.pick.Close())
	}
	s.closeTracer(ctx)
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
	}
	s.wg.Wait()
	s.flight.Close()
	if s.modelFiles.source != nil {
		s.modelFiles.source.Close()
	}
	if s.models != nil {
		s.models.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	return nil
}
