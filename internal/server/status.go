package server

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
)

// Status is the content of /status.
type Status struct {
	Name       string               `json:"name"`
	Pool       string               `json:"pool,omitempty"` // in a process that serves several
	Version    string               `json:"version"`
	State      string               `json:"state"` // starting, ready, degraded, draining
	Reason     string               `json:"reason,omitempty"`
	Problems   []problems.Found     `json:"problems"` // the most urgent first
	UptimeS    float64              `json:"uptime_s"`
	Decisions  uint64               `json:"decisions"`
	Traffic    outcomes.Totals      `json:"traffic"`
	Config     ConfigStatus         `json:"config"`
	Plugins    []PluginStatus       `json:"plugins,omitempty"` // that run code in another language
	Discovery  discovery.Status     `json:"discovery"`         // source of the endpoints
	Index      IndexStatus          `json:"index"`
	Models     []prefix.ModelStatus `json:"models"`
	ModelFiles []modelfiles.Status  `json:"model_files,omitempty"`  // files of models that engines serve and that are not configured
	NoModel    uint64               `json:"requests_without_model"` // requests that name an unknown model
	Modelless  ModellessStatus      `json:"requests_naming_no_model"`
	Cluster    ClusterStatus        `json:"cluster"`
	Members    []MemberStatus       `json:"members,omitempty"`
	Endpoints  []EndpointStatus     `json:"endpoints"`

	Queues []rules.Status `json:"queues,omitempty"`         // queues for capacity
	PD     *PDStatus      `json:"prefill_decode,omitempty"` // nil without roles

	multicluster.Status // of remote clusters

	Served extproc.ServedStatus `json:"served"` // whether proxies follow the picker's decisions
}

// ModellessStatus counts requests that name no model, in a pool of several: any engine may get them.
type ModellessStatus struct {
	Requests uint64   `json:"requests"`
	Paths    []string `json:"paths,omitempty"` // the first ones
}

// IndexStatus is the size of the prefix index.
type IndexStatus struct {
	Blocks      int `json:"blocks"`
	Entries     int `json:"entries"`
	HolderSets  int `json:"holder_sets"`
	Bytes       int `json:"bytes"`
	ApproxBytes int `json:"approx_bytes"`
}

// EndpointStatus is the status of one endpoint.
type EndpointStatus struct {
	Address   string   `json:"address"`
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	Knowledge string   `json:"knowledge"`                // a knowledge.State
	Reason    string   `json:"reason,omitempty"`         // why it is not better, if that is permanent
	Source    string   `json:"predicted_from,omitempty"` // source of predictions if events are not used
	Complete  bool     `json:"complete"`                 // events complete since the cache was empty
	LagMS     float64  `json:"lag_ms"`
	AgeMS     float64  `json:"age_ms,omitempty"` // time without events from a busy engine
	Behind    uint64   `json:"behind_batches"`
	Readers   []string `json:"readers,omitempty"` // members that read its events for this replica
	Blocks    int      `json:"blocks"`
	InFlight  int64    `json:"in_flight"`
	gauge.Values
	GaugeAgeS float64 `json:"gauge_age_s"` // -1: never read

	// PredictedS and ObservedS are recent means of predicted and observed seconds to the first token,
	// or to the end of answers whose first token was not observed.
	PredictedS float64 `json:"predicted_s,omitempty"`
	ObservedS  float64 `json:"observed_s,omitempty"`

	// GaugesError is why the last reading of its metrics page failed.
	GaugesError string `json:"gauges_error,omitempty"`

	Health HealthStatus `json:"health"`
	// Problems are its problems in the list of all, the most urgent first.
	Problems []problems.Code `json:"problems,omitempty"`
	// Traffic is what ended there since it joined.
	Traffic outcomes.EndpointTotals `json:"traffic"`

	// Audit is the accuracy of predicted cached tokens, by model.
	Audit []prefix.Verdict `json:"audit,omitempty"`
	// Rendering is the engine's results for fixed chats, by model.
	Rendering map[string][]remote.Finding `json:"rendering,omitempty"`
	// EngineVersion is the version that its engine reports.
	EngineVersion string `json:"engine_version,omitempty"`

	// Models are the configured models of the endpoint. Streams are the sources of its events.
	Models  []string       `json:"models,omitempty"`
	Streams []StreamStatus `json:"streams,omitempty"`

	Facts *saved.Facts `json:"facts,omitempty"`
}

// StreamStatus is a source of an endpoint's events, as configured or reported by the engine.
type StreamStatus struct {
	Events string `json:"events"`
	Replay string `json:"replay,omitempty"`
	Topic  string `json:"topic,omitempty"`
}

// waiting returns how many requests wait at this replica, by model.
func (s *Server) waiting() map[string]int {
	out := map[string]int{}
	for _, q := range s.gate.Status() {
		out[q.Model] += q.Waiting
	}
	return out
}

// Status returns the state of the replica.
func (s *Server) Status() Status {
	now := monotime.Now()
	st := Status{
		Name: s.o.Name, Version: s.o.Version, UptimeS: now.Sub(s.started).Seconds(),
		Decisions: s.chooser.decided.Load(), Models: s.models.Status(), ModelFiles: s.modelFiles.source.Status(), NoModel: s.models.Registry().Unknown(), Endpoints: []EndpointStatus{},
	}
	if s.o.Shared != nil {
		st.Pool = s.o.Shared.Pool
	}
	st.State, st.Reason = s.state()
	if s.processor != nil {
		st.Served = s.processor.Served()
	}
	st.Modelless.Requests, st.Modelless.Paths = s.scheduler.Modelless()
	st.Traffic = s.scheduler.Outcomes().Totals()
	s.reloading.Lock()
	st.Config = s.configStatus
	s.reloading.Unlock()
	st.Plugins = pluginStatus(s.config.Load(), time.Now())
	if s.discovery != nil {
		st.Discovery = s.discoveryStatus()
	}
	x := s.index.Stats()
	st.Index = IndexStatus{Blocks: x.Nodes, Entries: x.Entries, HolderSets: x.Sets, Bytes: x.Bytes, ApproxBytes: s.approx.MemoryBytes()}
	st.Cluster, st.Members = s.clusterStatus()
	st.Queues, st.PD = s.gate.Status(), s.pdStatus()
	st.Status = s.federation.Status(now)
	unread := map[string]string{}
	for _, p := range s.scrape.Status() {
		unread[p.Address] = p.Error
	}
	for _, ep := range s.pool.Snapshot().Endpoints {
		e := s.endpointStatus(ep, now)
		e.GaugesError = unread[ep.Address]
		st.Endpoints = append(st.Endpoints, e)
	}
	st.Problems = findProblems(&st, s.symptoms())
	return st
}

func (s *Server) endpointStatus(ep *endpoint.Endpoint, now time.Time) EndpointStatus {
	k, g := s.share.Knowledge(ep.ID), ep.Gauges()
	e := EndpointStatus{
		Address: ep.Address, Name: ep.Name, Up: !ep.Down(), Knowledge: k.State.String(), Complete: k.Complete,
		LagMS: millis(k.Lag), AgeMS: millis(s.share.Age(ep.ID)), Behind: k.Behind, InFlight: s.pool.LoadTracker().Load(ep, now).Requests,
		Values: g.Values, GaugeAgeS: -1,
		Blocks: s.blocks(ep), Facts: saved.FactsOf(s.pool, ep, now),
	}
	e.Health = healthStatus(s.pool.Health().View(int(ep.ID)), now)
	e.Health.AvoidedModels, e.Health.AvoidedOthers = ep.AvoidedModels(nil, now), ep.AvoidedOthers(now)
	e.Health.FullS = ep.Tracker().FullFor(now).Seconds()
	e.Models = ep.Models
	for _, st := range s.finder.Streams(ep) {
		e.Streams = append(e.Streams, StreamStatus{st.Events, st.Replay, st.Topic})
	}
	if e.Readers = s.share.Readers(ep.ID); k.State != knowledge.Exact {
		e.Reason = s.share.Reason(ep.ID)
	}
	e.Audit, e.Rendering, e.EngineVersion = s.prefixes.Verdicts(ep), s.findings(ep), s.served.Version(ep.ID)
	if e.Health.State == health.Unreached {
		if k.State == knowledge.Exact || e.EngineVersion != "" { // its events or model list have been read
			e.Health.State = health.Healthy.String()
		} else {
			e.Up = false
		}
	}
	e.Traffic = s.scheduler.Outcomes().Endpoint(ep)
	f := ep.Forecast()
	e.PredictedS, e.ObservedS = f.Predicted, f.Observed
	state, reason := s.knowledgeOf(ep, k.State)
	if reason != "" {
		e.Knowledge, e.Reason = state.String(), reason
	}
	e.Source = s.prefixes.Basis(ep, state)
	if age, ok := ep.GaugeAge(now); ok {
		e.GaugeAgeS = age.Seconds()
	}
	return e
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// blocks counts the known blocks of an endpoint, over all ranks.
func (s *Server) blocks(ep *endpoint.Endpoint) (n int) {
	for r := range max(ep.Events.Ranks, 1) {
		n += s.index.Blocks(block.Source{Endpoint: ep.ID, Rank: uint16(r)})
	}
	return n
}

// state returns the replica's state and, unless it is ready, the reason.
func (s *Server) state() (state, reason string) {
	switch pending := s.pending(); {
	case s.draining.Load():
		return "draining", ""
	case len(s.pool.Snapshot().Endpoints) == 0:
		return "starting", s.discoveryProblem()
	case s.undecodable() != "":
		return "starting", s.undecodable()
	case !s.settled.Load():
		return "starting", s.startingReason(pending)
	case s.poolProblem() != "":
		return "degraded", s.poolProblem()
	case pending > 0:
		return "degraded", s.startingReason(pending)
	case s.discovery != nil && !s.discoveryOK():
		return "degraded", s.discoveryProblem()
	}
	if why := s.wrongPredictions(); why != "" {
		return "degraded", why
	}
	if why := unknownRole(s.pool.Snapshot().Endpoints); why != "" {
		return "degraded", why
	}
	return "ready", ""
}

// wrongPredictions describes endpoints whose events do not match the cache hits of their prompts.
func (s *Server) wrongPredictions() string {
	n, first := 0, ""
	eps := s.pool.Snapshot().Endpoints
	for _, ep := range eps {
		if state, reason := s.prefixes.State(ep, s.share.State(ep.ID)); state == knowledge.Mismatched {
			if n++; first == "" {
				first = reason
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("predictions for %d of %d endpoints are wrong: %s", n, len(eps), first)
}

// discoveryProblem describes the problem with the source of endpoints.
func (s *Server) discoveryProblem() string {
	if s.discovery == nil {
		return "discovering endpoints"
	}
	st := s.discoveryStatus()
	if why := st.Reason(); why != "" {
		return why
	}
	return st.From + " names no endpoint"
}

// startingReason describes the condition that an unsettled replica waits for.
func (s *Server) startingReason(pending int) string {
	switch {
	case !s.modelsReady():
		return "loading models"
	case s.node.Phase() == cluster.Settling:
		return "joining the other replicas"
	case pending == 0:
		return "the next check of readiness is due within 20 ms"
	}
	return fmt.Sprintf("%d of %d endpoints are not exact yet", pending, len(s.pool.Snapshot().Endpoints))
}

// pending counts the endpoints that publish events and are not synchronized yet.
func (s *Server) pending() int {
	n := 0
	for _, ep := range s.pool.Snapshot().Endpoints {
		if s.finder.Publishes(ep) && !ep.Down() && s.share.Knowledge(ep.ID).State < knowledge.Partial && !s.share.Final(ep.ID) {
			n++
		}
	}
	return n
}

// checks returns the readiness checks.
func (s *Server) checks() []admin.Check {
	n := len(s.pool.Snapshot().Endpoints)
	c := []admin.Check{
		{Name: "serving", Ready: !s.draining.Load()},
		{Name: "endpoints", Ready: n > 0, Reason: s.endpointsKnown(n)},
		{Name: "models", Ready: s.modelsReady(), Reason: s.withoutFiles()},
		{Name: "knowledge", Ready: s.settled.Load()},
		{Name: "cluster", Ready: s.node.Phase() != cluster.Settling, Reason: s.node.Status().Health.Line},
	}
	if why := s.undecodable(); why != "" {
		c[1].Ready, c[1].Reason = false, why
	}
	if why := s.xds.pace.slow(); why != "" {
		c[0].Ready, c[0].Reason = false, why
	}
	if p := s.pending(); p > 0 {
		c[3].Reason = fmt.Sprintf("%d of %d endpoints are not exact yet", p, n)
	} else if why := s.wrongPredictions(); why != "" {
		c[3].Reason = why
	}
	return c
}

// ready reports whether requests are accepted.
func (s *Server) ready() bool {
	return s.settled.Load() && !s.draining.Load() && len(s.pool.Snapshot().Endpoints) > 0 && s.undecodable() == "" && s.xds.pace.slow() == ""
}

// empty reports whether the list of endpoints was read successfully and is empty.
func (s *Server) empty() bool {
	if s.discovery == nil || s.draining.Load() {
		return false
	}
	st := s.discoveryStatus()
	return st.OK() && !st.Read.IsZero() && st.Endpoints == 0
}

// overdue reports whether ReadyTimeout has passed.
func (s *Server) overdue() bool { return time.Since(s.started) > s.o.ReadyTimeout }

// readyEvery is how often readiness is checked once the state has settled. A stalled loop and a drain end
// it at once.
const readyEvery = 500 * time.Millisecond

// watchReadiness sets the gRPC health state to ready once the state has settled, or ReadyTimeout
// has passed.
func (s *Server) watchReadiness(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var version int64
	watch := s.dog.Loop("readiness").Within(longWork) // it waits for changes of the endpoint list
	for {
		watch.Working()
		if v := s.models.Version(); v != version {
			version = v
			s.share.Set()
		}
		if !s.settled.Load() {
			over := s.overdue()
			models, phase, pending := s.modelsReady(), s.node.Phase(), s.pending()
			known := models && phase != cluster.Settling && pending == 0
			if len(s.pool.Snapshot().Endpoints) > 0 && (known || over) {
				s.settled.Store(true)
				if !known {
					s.o.Log.Warn("ready before the prefix index is complete", "endpoints_pending", pending, "models_read", models, "cluster", phase.String())
				}
			}
		}
		s.pool.Expire()
		s.readiness.Set(s.ready())
		tick.Reset(20 * time.Millisecond)
		if s.settled.Load() {
			tick.Reset(ticks.Until(readyEvery))
		}
		watch.Waiting()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// collector exports endpoint state and the size of the index.
type collector struct {
	s                                     *Server
	state, lag, behind, blocks, size, all *prometheus.Desc
	rendered, missed, drift               *prometheus.Desc
	listAge, listOrigin                   *prometheus.Desc
}

func newCollector(s *Server) *collector {
	ep := []string{"endpoint"}
	return &collector{
		s:      s,
		state:  prometheus.NewDesc("grapevine_knowledge_state", "1 for the current knowledge state of an endpoint.", []string{"endpoint", "state"}, nil),
		lag:    prometheus.NewDesc("grapevine_knowledge_lag_seconds", "Age of the newest event batch when it was applied, or the time for which a working engine has sent no events, whichever is larger.", ep, nil),
		behind: prometheus.NewDesc("grapevine_knowledge_behind_batches", "Batches known to exist and not applied.", ep, nil),
		blocks: prometheus.NewDesc("grapevine_index_endpoint_blocks", "Blocks in the index for an endpoint.", ep, nil),
		size:   prometheus.NewDesc("grapevine_index_bytes", "Memory of the index by part.", []string{"part"}, nil),
		all:    prometheus.NewDesc("grapevine_index_blocks", "Distinct blocks in the index.", nil, nil),

		listAge:    prometheus.NewDesc("grapevine_discovery_list_age_seconds", "Time since the source of the list of endpoints in use was last read, by this replica or by the one that provided the list.", nil, nil),
		listOrigin: prometheus.NewDesc("grapevine_discovery_list_origin", "1 for the origin of the list of endpoints in use: source, peer, or file (of --state-dir).", []string{"origin"}, nil),

		drift: prometheus.NewDesc("grapevine_share_in_flight_drift", "Requests that the replicas count as in flight at an endpoint, minus those that its engine reports as running or queued.", ep, nil),

		rendered: prometheus.NewDesc("grapevine_prompts_rendered_total", "Prompts rendered exactly, by configured model.", []string{"model"}, nil),
		missed:   prometheus.NewDesc("grapevine_prompts_missed_total", "Prompts matched approximately or in part, by configured model, none for others, and by reason.", []string{"model", "reason"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.lag, c.behind, c.blocks, c.size, c.all, c.rendered, c.missed, c.drift, c.listAge, c.listOrigin} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := monotime.Now()
	for _, ep := range c.s.pool.Snapshot().Endpoints {
		k := c.s.share.Knowledge(ep.ID)
		state, _ := c.s.knowledgeOf(ep, k.State)
		gauge(c.state, 1, ep.Address, state.String())
		gauge(c.lag, k.Lag.Seconds(), ep.Address)
		gauge(c.behind, float64(k.Behind), ep.Address)
		gauge(c.blocks, float64(c.s.blocks(ep)), ep.Address)
		if g := ep.Gauges(); !g.At.IsZero() {
			gauge(c.drift, float64(c.s.pool.LoadTracker().Load(ep, now).Requests)-float64(g.Running+g.Waiting), ep.Address)
		}
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	count(c.missed, c.s.models.Registry().Unknown(), "", prompt.ReasonNoModel.String())
	for _, m := range c.s.models.Status() {
		count(c.rendered, m.Rendered, m.Name)
		for reason, n := range m.Missed {
			count(c.missed, n, m.Name, reason)
		}
	}
	if c.s.discovery != nil {
		kind, read := c.s.lists.origin()
		if !read.IsZero() {
			gauge(c.listAge, time.Since(read).Seconds())
		}
		for _, k := range []string{originSource, originPeer, originFile} {
			v := 0.
			if k == kind {
				v = 1
			}
			gauge(c.listOrigin, v, k)
		}
	}
	x := c.s.index.Stats()
	gauge(c.size, float64(x.Bytes), "precise")
	gauge(c.size, float64(c.s.approx.MemoryBytes()), "approximate")
	gauge(c.all, float64(x.Nodes))
}
