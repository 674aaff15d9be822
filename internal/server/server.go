package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/history"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/pd/signed"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/monitor"
	"github.com/grapevine-epp/grapevine/picker/programs/admission"
	"github.com/grapevine-epp/grapevine/picker/scrape"
	"github.com/grapevine-epp/grapevine/picker/served"
	"github.com/grapevine-epp/grapevine/picker/sessions"
	"github.com/grapevine-epp/grapevine/picker/warmup"
)

// Server is one running replica: the parts of the architecture drawing, from the bottom to the top.
// Its methods build, connect and stop the parts. No part refers to it.
type Server struct {
	o         Options
	registry  *prometheus.Registry
	budget    *budget.Budget
	listeners *budget.Listeners
	started   time.Time

	config *configuration
	prefixParts
	pool *endpoint.Pool
	engineParts
	groupParts
	decisionParts
	listenerParts
	diagnosticParts

	stage stage
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// prefixParts map prompts to the engines' caches.
type prefixParts struct {
	ownSeed   block.Seed
	hasher    block.Hasher
	index     *indexer.Index
	approx    *approx.Index
	models    *prefix.Models
	files     *modelFinder
	profiles  prefix.Profiles // rendering profiles of engines
	rendering *remote.Prober  // nil: rendering probes are off
	prefixes  *prefix.Matcher
	knowledge *cacheKnowledge
}

// engineParts find the pool's endpoints and observe their engines.
type engineParts struct {
	engines engineAccess
	lists   *endpointLists
	finder  *share.Finder
	scrape  *scrape.Poller
	served  *served.Reader // reads engines' model lists
	health  *monitor.Monitor
}

// groupParts share state with the other replicas.
type groupParts struct {
	grouped   bool
	node      *cluster.Node
	bus       cluster.Bus
	setup     *facts.Setup
	seeds     *facts.Seeds // nil if the seed is derived from a secret or not shared
	share     *share.Index
	xds       *xdsShare
	load      *facts.Load
	queues    *facts.Queues
	costs     *facts.Costs
	hints     *facts.Hints
	decisions *groupDecisions
	peerFiles *peerFiles // nil without a group
}

// decisionParts are the parts that decide about requests.
type decisionParts struct {
	sessions    *sessions.Table
	gate        *gate.Gate
	programs    *admission.Gate
	stopReports context.CancelFunc // ends the reports of load to other replicas; nil without a group
	stopQueue   context.CancelFunc // admits all waiting requests; nil before the queue exists
	federation  *multicluster.Part // nil: no federation
	blame       health.Prompts
	warmUps     *warmup.Sender
	scheduler   *picker.Scheduler
	signer      *signed.Signer // nil: targets are not signed
	recorder    *recording.Recorder
	chooser     *chooser
}

// listenerParts are the listeners of proxies and operators.
type listenerParts struct {
	readiness   *listen.Readiness
	certificate *listen.Expiry // nil: no TLS
	adminTLS    *tls.Config    // nil: no TLS
	processor   *extproc.Processor
	extproc     *extproc.Server
	admin       *admin.Server
	pick        *admin.Pick // nil: none
}

// diagnosticParts are the parts that observe this process and its requests.
type diagnosticParts struct {
	tracer    *tracing.Tracer // nil: requests are not traced
	dog       *watchdog.Watchdog
	condition *condition
	reporter  *reporter
	problems  problemWatch
	flight    *flightrecorder.Recorder
	history   *history.Recorder
}

// Open starts a replica. If a part fails to start, Open stops all others.
func Open(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{o: o, groupParts: groupParts{grouped: o.Cluster.enabled()}, registry: prometheus.NewRegistry(), started: o.Started, listenerParts: listenerParts{readiness: listen.NewReadiness()}}
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

// Status returns the state of the replica.
func (s *Server) Status() Status { return s.reporter.status() }

// Rank returns this replica's position among the live members of the group, ordered by name, from
// 0. The first one does work that one replica does for all. Leaving members come last. Replicas
// that cannot reach each other may be first at the same time.
func (s *Server) Rank() int { return rankIn(s.node) }

// ExtProcAddr returns the address of the ext_proc service.
func (s *Server) ExtProcAddr() net.Addr { return s.extproc.Addr() }

// AdminAddr returns the address of metrics and status.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }

// XDSAddr returns the address of the discovery service, nil without one.
func (s *Server) XDSAddr() net.Addr { return s.xds.addr }

// Reload reloads configuration, models and federation secrets. On error the old ones remain in use.
func (s *Server) Reload(context.Context) error {
	if err := s.engines.key.read(s.o.EngineKeyFile); err != nil {
		return err
	}
	if s.o.EngineKeyFile != "" {
		for _, ep := range s.pool.Snapshot().Endpoints {
			s.served.Recheck(ep.ID)
		}
	}
	if err := s.config.reload(false); err != nil {
		return err
	}
	s.files.source.Retry()
	s.models.Registry().Reload()
	return s.federation.Reload()
}

// Wait blocks until the listeners have stopped.
func (s *Server) Wait() error { return s.extproc.Wait() }

// Drain announces to proxies that no more requests are accepted, gives them time to notice, and
// waits for open requests, at most until ctx ends.
func (s *Server) Drain(ctx context.Context) {
	if s.stage.draining.Swap(true) {
		return
	}
	s.readiness.Set(false)
	s.o.Log.Info("draining")
	if s.grouped {
		s.node.HandOver(ctx)
	}
	s.federation.Leave() // after the hand-over, which shows who else leaves
}

// Stop stops everything and waits. Open requests have until ctx ends. Queued requests proceed in
// order. Those still queued shortly before the end are given up if their proxies ask another replica then,
// and otherwise admitted all at once, because they would be lost.
func (s *Server) Stop(ctx context.Context) error {
	drained := s.stage.draining.Swap(true)
	s.stop()
	var errs []error
	if s.extproc != nil {
		late := s.releaseBefore(ctx)
		errs = append(errs, s.extproc.Stop(ctx))
		late.Stop()
	}
	s.endReports(drained)
	// Leave last: other replicas must count this replica's load until its last request has ended.
	if s.node != nil && s.grouped && drained {
		if err := s.node.Leave(ctx); err != nil {
			s.o.Log.Warn("could not announce leave", "error", err)
		}
	}
	if s.stopQueue != nil {
		s.stopQueue()
	}
	s.warmUps.Close()
	s.xds.close()
	errs = append(errs, s.federation.Close())
	s.lists.close()
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
	s.files.close()
	if s.models != nil {
		s.models.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	return nil
}
