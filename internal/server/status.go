package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/listen"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/multicluster"
	"github.com/grapevine-epp/grapevine/internal/prefix"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/prompt"
	"github.com/grapevine-epp/grapevine/internal/prompt/remote"
	"github.com/grapevine-epp/grapevine/internal/share"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/endpoint/saved"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/programs"
	"github.com/grapevine-epp/grapevine/picker/programs/admission"
	"github.com/grapevine-epp/grapevine/picker/scrape"
	"github.com/grapevine-epp/grapevine/picker/served"
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

	Programs []programs.Status `json:"programs,omitempty"` // agent runs that program-admission tracks

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
	Address   string `json:"address"`
	Name      string `json:"name"`
	Up        bool   `json:"up"`
	Knowledge string `json:"knowledge"`        // a knowledge.State
	Reason    string `json:"reason,omitempty"` // why it is not better, if that is permanent
	// StreamError is why this replica cannot connect to its event stream, which others may read.
	StreamError string   `json:"stream_error,omitempty"`
	Source      string   `json:"predicted_from,omitempty"` // source of predictions if events are not used
	Complete    bool     `json:"complete"`                 // events complete since the cache was empty
	LagMS       float64  `json:"lag_ms"`
	AgeMS       float64  `json:"age_ms,omitempty"` // time without events from a busy engine
	Behind      uint64   `json:"behind_batches"`
	Readers     []string `json:"readers,omitempty"` // members that read its events for this replica
	Blocks      int      `json:"blocks"`
	InFlight    int64    `json:"in_flight"`
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

// reporter makes the status of a replica. It is safe for concurrent use.
type reporter struct {
	Options *Options
	Started time.Time

	Config     *configuration
	Lists      *endpointLists
	Pool       *endpoint.Pool
	Models     *prefix.Models
	Files      *modelFinder
	Index      *indexer.Index
	Approx     *approx.Index
	Prefixes   *prefix.Matcher
	Knowledge  *cacheKnowledge
	Rendering  *remote.Prober // nil: off
	Scrape     *scrape.Poller
	Served     *served.Reader
	Finder     *share.Finder
	Share      *share.Index
	Node       *cluster.Node
	Grouped    bool
	Gate       *gate.Gate
	Programs   *admission.Gate
	Scheduler  *picker.Scheduler
	Chooser    *chooser
	Federation *multicluster.Part // nil: none
	Processor  *extproc.Processor
	Condition  *condition
	Problems   *problemWatch

	Dog           *watchdog.Watchdog
	Certificate   *listen.Expiry // nil: no TLS
	Tracer        *tracing.Tracer
	MissingRights func() []string // of the source of the group's members; nil: none
}

// waiting returns how many requests wait at this replica, by model.
func waiting(queues []rules.Status) map[string]int {
	out := map[string]int{}
	for _, q := range queues {
		out[q.Model] += q.Waiting
	}
	return out
}

// status returns the state of the replica.
func (r *reporter) status() Status {
	now := monotime.Now()
	st := Status{
		Name: r.Options.Name, Version: r.Options.Version, UptimeS: now.Sub(r.Started).Seconds(),
		Decisions: r.Chooser.decided.Load(), Models: r.Models.Status(), ModelFiles: r.Files.source.Status(), NoModel: r.Models.Registry().Unknown(), Endpoints: []EndpointStatus{},
	}
	if r.Options.Shared != nil {
		st.Pool = r.Options.Shared.Pool
	}
	st.State, st.Reason = r.Condition.state()
	st.Served = r.Processor.Served()
	st.Modelless.Requests, st.Modelless.Paths = r.Scheduler.Modelless()
	st.Traffic = r.Scheduler.Outcomes().Totals()
	st.Config = r.Config.report()
	st.Plugins = pluginStatus(r.Config.current(), time.Now())
	st.Discovery = r.Lists.status()
	x := r.Index.Stats()
	st.Index = IndexStatus{Blocks: x.Nodes, Entries: x.Entries, HolderSets: x.Sets, Bytes: x.Bytes, ApproxBytes: r.Approx.MemoryBytes()}
	st.Cluster, st.Members = r.clusterStatus()
	st.Programs = r.Programs.Status()
	st.Queues, st.PD = r.Gate.Status(), pdStatus(r.Pool, r.Scheduler.SplitCounts())
	st.Status = r.Federation.Status(now)
	unread := map[string]string{}
	for _, p := range r.Scrape.Status() {
		unread[p.Address] = p.Error
	}
	for _, ep := range r.Pool.Snapshot().Endpoints {
		e := r.endpointStatus(ep, now)
		e.GaugesError = unread[ep.Address]
		st.Endpoints = append(st.Endpoints, e)
	}
	st.Problems = findProblems(&st, r.symptoms())
	return st
}

func (r *reporter) endpointStatus(ep *endpoint.Endpoint, now time.Time) EndpointStatus {
	k, g := r.Share.Knowledge(ep.ID), ep.Gauges()
	e := EndpointStatus{
		Address: ep.Address, Name: ep.Name, Up: !ep.Down(), Knowledge: k.State.String(), Complete: k.Complete,
		LagMS: millis(k.Lag), AgeMS: millis(r.Share.Age(ep.ID)), Behind: k.Behind, InFlight: r.Pool.LoadTracker().Load(ep, now).Requests,
		Values: g.Values, GaugeAgeS: -1,
		Blocks: blocksOf(r.Index, ep), Facts: saved.FactsOf(r.Pool, ep, now),
	}
	e.Health = healthStatus(r.Pool.Health().View(int(ep.ID)), now)
	e.Health.AvoidedModels, e.Health.AvoidedOthers = ep.AvoidedModels(nil, now), ep.AvoidedOthers(now)
	e.Health.FullS = ep.Tracker().FullFor(now).Seconds()
	e.Models = ep.Models
	for _, st := range r.Finder.Streams(ep) {
		e.Streams = append(e.Streams, StreamStatus{st.Events, st.Replay, st.Topic})
	}
	if e.Readers = r.Share.Readers(ep.ID); k.State != knowledge.Exact {
		e.Reason = r.Share.Reason(ep.ID)
	}
	e.StreamError = r.Share.Disconnected(ep.ID)
	e.Audit, e.Rendering, e.EngineVersion = r.Prefixes.Verdicts(ep), findings(r.Models.Registry(), r.Rendering, ep), r.Served.Version(ep.ID)
	if e.Health.State == health.Unreached {
		if k.State == knowledge.Exact || e.EngineVersion != "" { // its events or model list have been read
			e.Health.State = health.Healthy.String()
		} else {
			e.Up = false
		}
	}
	e.Traffic = r.Scheduler.Outcomes().Endpoint(ep)
	f := ep.Forecast()
	e.PredictedS, e.ObservedS = f.Predicted, f.Observed
	state, reason := r.Knowledge.of(ep, k.State)
	if reason != "" {
		e.Knowledge, e.Reason = state.String(), reason
	}
	e.Source = r.Prefixes.Basis(ep, state)
	if age, ok := ep.GaugeAge(now); ok {
		e.GaugeAgeS = age.Seconds()
	}
	return e
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// collector exports endpoint state and the size of the index.
type collector struct {
	collected
	state, lag, behind, blocks, size, all *prometheus.Desc
	rendered, missed, drift               *prometheus.Desc
	listAge, listOrigin                   *prometheus.Desc
}

// collected are the parts that a collector reads.
type collected struct {
	pool      *endpoint.Pool
	models    *prefix.Models
	lists     *endpointLists
	index     *indexer.Index
	approx    *approx.Index
	share     *share.Index
	knowledge *cacheKnowledge
}

func newCollector(parts collected) *collector {
	ep := []string{"endpoint"}
	return &collector{
		collected: parts,

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
	for _, ep := range c.pool.Snapshot().Endpoints {
		k := c.share.Knowledge(ep.ID)
		state, _ := c.knowledge.of(ep, k.State)
		gauge(c.state, 1, ep.Address, state.String())
		gauge(c.lag, k.Lag.Seconds(), ep.Address)
		gauge(c.behind, float64(k.Behind), ep.Address)
		gauge(c.blocks, float64(blocksOf(c.index, ep)), ep.Address)
		if g := ep.Gauges(); !g.At.IsZero() {
			gauge(c.drift, float64(c.pool.LoadTracker().Load(ep, now).Requests)-float64(g.Running+g.Waiting), ep.Address)
		}
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	count(c.missed, c.models.Registry().Unknown(), "", prompt.ReasonNoModel.String())
	for _, m := range c.models.Status() {
		count(c.rendered, m.Rendered, m.Name)
		for reason, n := range m.Missed {
			count(c.missed, n, m.Name, reason)
		}
	}
	if c.lists.source != nil {
		kind, read := c.lists.origin()
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
	x := c.index.Stats()
	gauge(c.size, float64(x.Bytes), "precise")
	gauge(c.size, float64(c.approx.MemoryBytes()), "approximate")
	gauge(c.all, float64(x.Nodes))
}
