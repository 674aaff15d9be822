package server

import (
	"cmp"
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/history"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker/request"
	"github.com/grapevine-epp/grapevine/picker/served"
)

// openDiagnostics opens the parts that describe this replica. The processor of requests is one of
// them: it serves nothing yet.
func (s *Server) openDiagnostics(context.Context) (err error) {
	if s.processor, err = extproc.New(extproc.Options{
		Chooser: s.chooser, Parse: request.Parse, ParsePrefix: request.ParsePrefix,
		Forms:        func() bool { _, several := s.pool.Snapshot().OnlyBase(); return several },
		Answer:       s.answer,
		IgnoreSubset: s.o.IgnoreSubset, Gateway: s.o.Gateway, Destinations: s.o.Destinations, ReportServed: s.config.opened.ReportServed,
		MaxBody: s.o.MaxBody, Budget: s.budget, BodyTimeout: s.o.BodyTimeout, MessageTimeout: s.o.MessageTimeout, MaxMessageTimeout: s.o.MaxMessageTimeout, KVTransfer: s.o.KVTransfer, PassControl: s.o.PassControl,
		AllowModeOverride: s.o.AllowModeOverride, FallbackMetadata: s.o.FallbackMetadata,
		Trust:       func() *request.Trust { return s.config.current().Trust },
		AnswerModel: s.o.AnswerModel, Rewrites: s.scheduler.Rewrites, Tracer: s.tracer,
		Registerer: s.registry, Log: s.o.Log,
	}); err != nil {
		return err
	}
	if err := s.openCertificate(); err != nil {
		return err
	}
	s.reporter = &reporter{
		Options: &s.o, Started: s.started, Config: s.config, Lists: s.lists, Pool: s.pool, Models: s.models, Files: s.files, Index: s.index, Approx: s.approx,
		Prefixes: s.prefixes, Knowledge: s.knowledge, Rendering: s.rendering, Scrape: s.scrape, Served: s.served, Finder: s.finder, Share: s.share,
		Node: s.node, Grouped: s.grouped, Gate: s.gate, Programs: s.programs, Scheduler: s.scheduler, Chooser: s.chooser, Federation: s.federation, Processor: s.processor,
		Condition: s.condition, Problems: &s.problems, Dog: s.dog, Certificate: s.certificate, Tracer: s.tracer, MissingRights: s.o.Cluster.MissingRights,
	}
	s.registry.MustRegister(
		newCollector(collected{pool: s.pool, models: s.models, lists: s.lists, index: s.index, approx: s.approx, share: s.share, knowledge: s.knowledge}),
		newPDCollector(s.pool), newPluginCollector(s.config), &s.problems, &s.xds.pace,
	)
	if s.flight, err = openFlight(flightSource{
		Options: &s.o, Started: s.started, Budget: s.budget, Registry: s.registry, Config: s.config, Reporter: s.reporter, Decisions: s.decisions, EngineKey: s.engines.key.get,
	}); err != nil {
		return err
	}
	s.history = history.New(history.Source{Models: s.scheduler.Outcomes().Models, Waiting: func() map[string]int { return waiting(s.gate.Status()) }})
	return nil
}

// openCertificate reads the certificate of the administration listener, unless the process has that.
func (s *Server) openCertificate() (err error) {
	if s.o.Shared != nil {
		return nil
	}
	if s.adminTLS, err = s.o.TLS.Config(s.o.Log); err != nil || s.adminTLS == nil {
		return err
	}
	s.certificate = listen.WatchExpiry(s.adminTLS, s.o.Log)
	s.registry.MustRegister(s.certificate)
	return nil
}

// answer responds to model list requests, unless engines are to.
func (s *Server) answer(method, path string) (status int, body []byte, ok bool) {
	if s.o.PassModels {
		return 0, nil, false
	}
	return served.Answer(s.pool.Snapshot(), method, path, s.started)
}

// openListeners serves metrics, health, status and operator endpoints, unless the process does, and
// then the proxies.
func (s *Server) openListeners(ctx context.Context) (err error) {
	if s.o.Shared == nil {
		o := s.pages()
		o.Bind, o.Control, o.Token, o.TLS = s.o.Admin, s.o.Control, s.o.ControlToken, s.adminTLS
		o.Registerer, o.LogLevels = s.registry, s.o.Levels()
		if s.admin, err = admin.Open(o); err != nil {
			return err
		}
	}
	if s.extproc, err = extproc.Open(s.processor, extproc.Listen{
		Address: s.o.Listen, TLS: s.o.TLS, HealthAddress: s.o.Health, Linger: max(s.o.Linger, 0), Readiness: s.readiness, Listeners: s.listeners,
	}); err != nil {
		return err
	}
	if err := s.openPick(); err != nil {
		return err
	}
	if s.o.XDS.Listen != "" || s.grouped {
		return s.xds.open(ctx, s.extproc.Addr())
	}
	return nil
}

// usualBody is the maximum size of a request body without a configured one.
const usualBody = 64 << 20

// pages returns what the administration listener serves.
func (s *Server) pages() admin.Options {
	dry := &dryRun{Scheduler: s.scheduler, Pool: s.pool, Share: s.share, Knowledge: s.knowledge, MaxBody: cmp.Or(max(s.o.MaxBody, 0), usualBody)}
	return admin.Options{
		Gatherer: s.gatherer(), Ready: s.condition.checks, Stalled: s.dog.Stalled, Status: func() any { return s.reporter.status() },
		History:   func(model string) (any, bool) { return s.history.Show(model) },
		Decisions: s.decisions.find, Explain: dry.explain, Record: s.recorder, Flight: s.flight, Reload: s.Reload, Budget: s.budget, Listeners: s.listeners, Log: s.o.Log,
	}
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
		Trust: func() *request.Trust { return s.config.current().Trust }, Registerer: s.registry, Log: s.o.Log,
		Budget: s.budget, Listeners: s.listeners,
	})
	if err == nil {
		s.o.Log.Info("listening for picks of other proxies", "address", s.pick.Addr().String())
	}
	return err
}
