package server

import (
	"context"
	"fmt"
	"time"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/monitor"
	"github.com/grapevine-epp/grapevine/picker/sizing"
	"github.com/grapevine-epp/grapevine/picker/warmup"
)

// openMatcher builds the matcher of prompts with caches, and what readiness depends on.
func (s *Server) openMatcher(context.Context) error {
	o := prefix.Options{
		Index: s.index, Approx: s.approx, Models: s.models, Profiles: &s.profiles, Speculate: s.o.Speculate, FullReport: s.o.FullReport,
		Read: s.share.State, Streams: s.finder.Streams,
		StreamInfo: func(ep *endpoint.Endpoint) prefix.StreamInfo {
			return prefix.StreamInfo{
				Blocks: blocksOf(s.index, ep), HasMessages: s.share.Knowledge(ep.ID).Silent > 0, Reports: s.share.Answered(ep.ID),
				Sparse: s.share.Sparse(ep.ID), Narrow: s.share.Narrow(ep.ID),
				TopicMismatch: s.share.TopicMismatch(ep.ID, s.finder.Streams(ep)),
			}
		},
		LastEvent:      s.share.LastEvent,
		VerdictChanged: func(ep *endpoint.Endpoint) { s.rendering.Recheck(ep) },
		ProbeTopics:    func(ep *endpoint.Endpoint) { s.share.ProbeTopics(s.finder.Streams(ep)) },
		Expect:         func(ep *endpoint.Endpoint, q block.Query) bool { return s.share.Expect(ep.ID, q) },
		Invalidate:     func(ep *endpoint.Endpoint) { s.share.Invalidate(ep.ID) },
		Confirm:        func(ep *endpoint.Endpoint) { s.share.Confirm(ep.ID) },
		Wait: func(ep *endpoint.Endpoint, now time.Time) time.Duration {
			l := s.pool.LoadTracker().Load(ep, now)
			return time.Duration(ep.Cost().Wait(&l, now) * float64(time.Second))
		},
		Registerer: s.registry, Log: s.o.Log,
	}
	if s.grouped {
		o.Recorded = s.hints.Recorded
	}
	s.prefixes = prefix.New(o)
	if err := s.prefixes.Collect(s.registry, func() []*endpoint.Endpoint { return s.pool.Snapshot().Endpoints }); err != nil {
		return err
	}
	s.knowledge = &cacheKnowledge{Pool: s.pool, Finder: s.finder, Share: s.share, Prefixes: s.prefixes, Files: s.files}
	s.condition = &condition{
		stage: &s.stage, Started: s.started, Timeout: s.o.ReadyTimeout, Federated: s.o.Federation.Read != nil,
		Pool: s.pool, Lists: s.lists, Models: s.models, Files: s.files, Node: s.node, Knowledge: s.knowledge, Pace: &s.xds.pace,
	}
	return nil
}

// openScheduler builds the parts that decide about requests.
func (s *Server) openScheduler(context.Context) (err error) {
	if err := s.openFederation(); err != nil {
		return err
	}
	c := s.config.current()
	if s.warmUps, err = warmup.Open(warmup.Options{
		Client: s.engines.client(monitor.NewClient()), Scheme: c.Metrics.Scheme, Budget: s.budget, Registerer: s.registry, Log: s.o.Log,
	}); err != nil {
		return err
	}
	var meter *sizing.Meter
	if s.o.SizeTarget != (sizing.Target{}) {
		meter = sizing.NewMeter(s.pool, s.o.SizeTarget, monotime.Now)
		s.registry.MustRegister(meter)
	}
	if s.scheduler, err = picker.New(picker.Options{
		RemoteClusters: s.federation.RemoteClusters(),
		Pool:           s.pool, Rules: c.Rules, Matcher: s.prefixes, Prompts: s.models, Sessions: s.sessions, Lists: s.served, PlaceUnknown: s.o.PlaceUnknown, RefuseKillers: s.o.RefuseKillers, Blame: &s.blame,
		SampleBodies: s.o.SampleBodies, Continuations: s.o.Continuations, Gate: s.programs, Sizing: meter, Records: retention(s.budget), WorkTimeout: s.o.WorkTimeout, SlowDecision: s.o.SlowDecision,
		Slow: func(took time.Duration) {
			s.flight.Trigger(flightrecorder.Slow, fmt.Sprintf("a decision took %v", took.Round(time.Millisecond)))
		},
		WarmUps: s.warmUps.WarmUps(), Registerer: s.registry, Log: s.o.Log,
	}); err != nil {
		return err
	}
	s.config.connect(configUsers{SetRules: s.scheduler.SetRules, Queue: s.gate.Configure, Programs: s.programs.Configure, Sizing: s.prefixes.SetSizing, Refresh: s.scrape.RefreshNow})
	s.decisions = newGroupDecisions(groupDecisions{Name: s.o.Name, Node: s.node, Grouped: s.grouped, Records: s.scheduler.Records(), Gate: s.gate})
	s.chooser = &chooser{chooserOptions: chooserOptions{
		scheduler: s.scheduler, pool: s.pool, prefixes: s.prefixes, signer: s.signer, recorder: s.recorder, federated: s.federation != nil, log: s.o.Log,
	}}
	if s.o.DecisionHeader {
		s.chooser.decisionID = s.decisions.id
	}
	return nil
}

// openFederation joins the configured federation of clusters, if any.
func (s *Server) openFederation() (err error) {
	s.federation, err = multicluster.Open(s.o.Federation, multicluster.Replica{
		Name: s.o.Name, Pool: s.pool, Registerer: s.registry, Log: s.o.Log, Watch: s.dog.Loop("federation"),
		Connections: s.listeners.Part(8),
		Group: func() (others, rank int) {
			if !s.grouped {
				return 0, 0
			}
			peers, _ := s.node.Peers()
			return len(peers), rankIn(s.node)
		},
		Last:    func() bool { return s.stage.settled.Load() && (!s.grouped || lastReplica(s.node)) },
		Print:   func() uint64 { return groupPrint(s.node, s.grouped) },
		Queued:  func() float64 { return queued(s.gate.Status()) },
		Unready: s.condition.unready,
	})
	if err == nil && s.grouped && s.federation.TracksHotPrompts() {
		s.federation.Share(facts.Of(s.node).Feed(multicluster.Feed, facts.StateVersion, s.federation))
	}
	return err
}
