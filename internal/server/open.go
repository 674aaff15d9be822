package server

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/scrape"
	"github.com/grapevine-epp/grapevine/picker/served"
	"github.com/grapevine-epp/grapevine/picker/sessions"
)

// open builds the parts, each from parts before it. Parts that need a later one get a function that
// is first called when that exists.
func (s *Server) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.openKeys, s.openPrefixes, s.openConfig, s.openEngines,
		s.openNode, s.openShared, s.openMatcher, s.openScheduler, s.joinGroup,
		s.findEndpoints, s.openDiagnostics, s.openListeners,
	} {
		if err := step(ctx); err != nil {
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
	s.wg.Go(func() { s.finder.Run(ctx, s.share.Set) })
	s.wg.Go(s.share.Run)
	s.wg.Go(func() { s.dog.Run(ctx) })
	s.wg.Go(func() {
		s.condition.watch(ctx, s.readiness, s.share.Set, s.dog.Loop("readiness").Within(longWork), s.o.Log) // it waits for changes of the endpoint list
	})
	s.wg.Go(func() { s.problems.watch(ctx, s.reporter, s.flight, s.o.LogWriter, s.budget, s.o.Log) })
	s.wg.Go(func() { s.flight.Run(ctx) })
	s.wg.Go(func() { s.history.Run(ctx) })
	if s.o.Source != nil {
		s.wg.Go(func() { s.lists.run(ctx) })
	}
	if s.grouped {
		s.wg.Go(func() { publishSetup(ctx, s.setup, s.files.searching) })
	}
	if s.rendering != nil {
		s.wg.Go(func() { s.rendering.Run(ctx) })
	}
	if s.o.Config != "" {
		s.wg.Go(func() { s.config.watch(ctx) })
	}
	if s.o.LogDecisions > 0 {
		l := &decisionLog{records: s.scheduler.Records(), share: s.o.LogDecisions, sign: s.decisions.sign, log: s.o.Log, next: 1}
		s.wg.Go(func() { l.run(ctx) })
	}
	s.wg.Go(func() { s.files.run(ctx, s.dog.Loop("model files").Within(longWork), s.share.Set) }) // it waits for the list of streams
	queue, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopQueue = stop
	s.wg.Go(func() {
		s.gate.Run(queue)
		s.programs.Configure(nil)
	})
	if s.federation != nil {
		s.wg.Go(func() { s.federation.Run(ctx) })
		s.wg.Go(func() { s.federation.TrackHotPrompts(ctx) })
	}
}

// openKeys reads the secrets that requests are sent or signed with, and opens the tracer.
func (s *Server) openKeys(context.Context) (err error) {
	if err := s.engines.key.read(s.o.EngineKeyFile); err != nil {
		return err
	}
	if s.o.TargetsKey != nil {
		if s.signer, err = signed.NewSigner(s.o.TargetsKey, time.Now); err != nil {
			return err
		}
		s.o.Log.Info("prefill targets are signed", "public_key", base64.StdEncoding.EncodeToString(s.signer.Public()))
	}
	s.tracer = tracing.Open(tracing.Options{Service: "grapevine", Instance: s.o.Name, Version: s.o.Version, Registerer: s.registry, Log: s.o.Log})
	return nil
}

// openPrefixes opens the pool, the indexes, and the models that render and tokenize prompts.
func (s *Server) openPrefixes(ctx context.Context) (err error) {
	s.ownSeed = firstSeed(s.o.Secret)
	s.hasher = block.NewHasher(s.ownSeed)
	s.index = indexer.New(indexOptions(s.hasher, s.budget))
	s.approx = approx.New(approx.Options{Hasher: s.hasher})
	s.pool = endpoint.NewPool(endpoint.PoolOptions{Keep: max(s.o.Keep, 0), Zone: s.o.Zone, RevisionLabels: s.o.RevisionLabels})
	s.finder = share.NewFinder(s.pool, s.o.Trust, s.o.Log)
	s.finder.EngineKey = s.engines.key.get
	s.sessions = sessions.New(0)
	s.recorder = recording.New(s.hasher, ctx.Done(), s.registry)
	if s.models, err = prefix.OpenModels(s.o.Models, prefix.ModelsOptions{Hasher: s.hasher, Approx: s.approx, Profiles: &s.profiles, Prompt: prompt.ModelsOptions{
		Log: s.o.Log, Budget: s.budget, Engine: remote.New(remote.Options{
			Endpoints: func(model string) []string { return renderers(s.pool, model) }, Client: s.engines.client(remote.NewClient()),
		}).Render,
	}}); err != nil {
		return err
	}
	source := s.o.ModelSource
	if s.grouped && source.Mode != "" && source.Mode != modelfiles.ModeOff {
		s.peerFiles = &peerFiles{}
	}
	source.Agent, source.Registerer, source.Log = "grapevine/"+s.o.Version, s.registry, s.o.Log
	s.files, err = openModelFinder(modelFinderOptions{
		Source: source, Peers: s.peerFiles, Pool: s.pool, Models: s.models, Started: s.started, Timeout: s.o.ReadyTimeout,
	})
	return err
}

// renderers returns the engines that may render a prompt of a model.
func renderers(pool *endpoint.Pool, model string) []string {
	var urls []string
	for _, ep := range pool.Snapshot().Endpoints {
		if list, _ := ep.EngineModels(); !ep.Down() && (ep.Listed(model) || list == nil && len(ep.Models) == 0) {
			urls = append(urls, "http://"+ep.Address)
		}
	}
	return urls
}

func (s *Server) openConfig(context.Context) (err error) {
	s.config, err = openConfiguration(configOptions{
		File: s.o.Config, Text: s.o.ConfigText, Plugins: s.o.Plugins, Engines: s.o.Engines, OwnEndpoints: s.o.Endpoints != "" || s.o.Source != nil,
		MessageTimeout: s.o.MessageTimeout, MaxMessageTimeout: s.o.MaxMessageTimeout,
		Budget: s.budget, Pool: s.pool, Registry: s.registry, Log: s.o.Log,
	})
	return err
}

// openEngines opens the readers of engines' metrics pages and model lists.
func (s *Server) openEngines(context.Context) (err error) {
	m := s.config.current().Metrics
	pages, err := m.TLS.Config()
	if err != nil {
		return err
	}
	if m.Scheme == "https" && m.Port == 0 {
		s.engines.tls = pages
	}
	if s.scrape, err = scrape.Open(scrape.Options{
		Slow: s.o.ScrapeSlow, Fast: s.o.ScrapeFast, Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("metrics pages"),
		Scheme: m.Scheme, Path: m.Path, TLS: pages,
		Dialects: func() *scrape.Dialects { return s.config.current().Metrics.Dialects },
		Pace:     s.config.gaugePace,
		Demand: func(ep *endpoint.Endpoint) bool {
			return s.config.gaugePace() > 0 || scrape.NearSaturation(ep) || s.load.Remaining(ep)
		},
		OnPage: s.onPage, OnRead: s.onRead,
		OnRestart: func(ep *endpoint.Endpoint) {
			s.blame.Gone(int(ep.ID), monotime.Now())
			s.pool.Renew(ep)
		},
	}); err != nil {
		return err
	}
	s.served, err = served.Open(served.Options{Pool: s.pool, Client: s.engines.client(served.NewClient()), Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("model lists")})
	return err
}

// onPage passes an engine's metrics page to the parts that use it.
func (s *Server) onPage(ep *endpoint.Endpoint, p scrape.Page) {
	s.profile(ep)
	s.load.Sampled(ep)
	s.pool.LearnLatency(ep, p.Latency, monotime.Now())
	s.prefixes.Sized(ep, p.Blocks, p.BlockSize)
	s.prefixes.Counted(ep, prefix.Reused{Tokens: p.HitTokens, Counts: p.Counts, Uncached: p.Uncached})
}

// onRead reports the result of a metrics page reading to the health monitor. Prompts that failed just
// before an engine refuses connections were in flight at its death.
func (s *Server) onRead(ep *endpoint.Endpoint, r scrape.Reading) {
	if r.Refused {
		s.blame.Gone(int(ep.ID), monotime.Now())
	}
	s.health.Read(ep, r)
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

// findEndpoints opens the endpoint source. The pool changes from then on.
func (s *Server) findEndpoints(context.Context) (err error) {
	if s.o.ProbeRendering && (len(s.o.Models) > 0 || !s.files.off) {
		if s.rendering, err = remote.NewProber(remote.ProberOptions{
			Name: s.o.Name, Endpoints: func() []*endpoint.Endpoint { return s.pool.Snapshot().Endpoints }, Models: s.models.Registry(),
			Found: func(ep *endpoint.Endpoint, model string, found []remote.Finding) {
				chats, tools := renderingDiffs(found)
				s.prefixes.NoteRenderingDiffs(ep, model, chats, tools)
			},
			Profile: func(ep *endpoint.Endpoint) prompt.Profile { return s.profiles.Of(ep.ID) },
			Client:  s.engines.client(remote.NewClient()), Registerer: s.registry, Log: s.o.Log,
		}); err != nil {
			return err
		}
	}
	s.pool.Subscribe(s.onChange)
	return s.lists.openSource(sourceOptions{
		Open: s.o.Source, File: s.o.Endpoints, Config: s.config.current(), Watch: s.dog.Loop("endpoint list").Within(longWork),
		Sink: discovery.Sink{Registerer: s.registry, Log: s.o.Log, Writes: func() bool { return rankIn(s.node) == 0 }},
	})
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
	if s.grouped { // without a group, nothing would consume it
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
