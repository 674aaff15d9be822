package picker

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/histograms"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/outcomes"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// metrics holds the scheduler's counters. No label value is taken from a request.
type metrics struct {
	decisions  prometheus.Counter
	refusals   []prometheus.Counter // by reason
	computed   [len(kvtransfer.Computers)]prometheus.Counter
	stages     [cycle.NumStages][cycle.NumStageOutcomes]prometheus.Counter
	took       prometheus.Histogram
	candidates prometheus.Histogram
	moved      prometheus.Counter
	crossed    [2]prometheus.Counter // by crossing
	modelless  prometheus.Counter

	evaluations prometheus.Counter // failed, of expressions

	splits        [2]prometheus.Counter // seconds gained and lost by split requests
	conversations [cycle.NumConversationUses]prometheus.Counter
	ended         [3]prometheus.Counter // failed, complete, unknown
	ends          *outcomes.Counter
	ttft          prometheus.Histogram
	ttftError     prometheus.Histogram
	predictedT    prometheus.Counter
	cachedT       prometheus.Counter
	promptT       prometheus.Counter
}

// splitTime counts the seconds that a split request gained, or lost if negative.
func (m *metrics) splitTime(gained float64) {
	if gained >= 0 {
		m.splits[0].Add(gained)
	} else {
		m.splits[1].Add(-gained)
	}
}

func newMetrics(reg prometheus.Registerer, pool *endpoint.Pool) (*metrics, error) {
	m := &metrics{
		decisions: counter("decisions_total", "Requests that were placed."),
		took: histogram("decision_seconds", "Time from the parsed request to the decision.",
			prometheus.ExponentialBuckets(5e-6, 2, 16)),
		evaluations: counter("expression_errors_total", "Evaluations of expressions that failed: the filter kept the endpoint, the scorer gave it 0."),
		candidates:  histogram("candidates", "Endpoints that a request could go to.", prometheus.ExponentialBuckets(1, 2, 12)),
		moved:       counter("moved_total", "Requests that the proxy sent to another endpoint than the first choice."),
		modelless:   counter("modelless_total", "Requests that name no model where the picker looks, in a pool of several: any engine may get them."),
		ttft:        histogram("ttft_seconds", "Time from decision to first token, where observed.", prometheus.ExponentialBuckets(0.01, 1.6, 20)),
		ttftError: histogram("ttft_error_ratio", "Observed over predicted time to first token.",
			[]float64{.1, .25, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 4, 10}),
		predictedT: counter("predicted_cached_tokens_total", "Prompt tokens that the decision expected in cache, where the engine reported."),
		cachedT:    counter("reported_cached_tokens_total", "Prompt tokens that engines reported from cache."),
		promptT:    counter("reported_prompt_tokens_total", "Prompt tokens that engines reported."),
	}
	all := []prometheus.Collector{m.decisions, m.took, m.candidates, m.moved, m.modelless, m.evaluations, m.ttft, m.ttftError, m.predictedT, m.cachedT, m.promptT}
	refusals := counterVec("refusals_total", "Requests that could not be placed, by reason.", "reason")
	for _, reason := range request.Reasons() {
		m.refusals = append(m.refusals, refusals.WithLabelValues(reason.String()))
	}
	stages := counterVec("stages_total", "Placed requests for which a split was considered, by stage and decision.", "stage", "outcome")
	for k := range m.stages {
		for o := range m.stages[k] {
			label := strings.ReplaceAll(cycle.StageOutcome(o).String(), " ", "_")
			m.stages[k][o] = stages.WithLabelValues(cycle.StageKind(k).String(), label)
		}
	}
	computed := counterVec("prompts_computed_total", "Answered split requests, by the engine that computed the prompt, as reported by the sidecar.", "by")
	for by, name := range kvtransfer.Computers {
		m.computed[by] = computed.WithLabelValues(name)
	}
	crossed := counterVec("zone_crossings_total", "Placed requests that left this replica's zone, by reason: gain (endpoints of the zone were predicted to be worse) or no_endpoint (none could serve the request). Both zones are known.", "reason")
	m.crossed = [2]prometheus.Counter{crossed.WithLabelValues("gain"), crossed.WithLabelValues("no_endpoint")}
	splits := counterVec("split_seconds_total", "Time to the first token of streamed split requests against the predicted time of the whole request, by result: gained or lost.", "result")
	m.splits = [2]prometheus.Counter{splits.WithLabelValues("gained"), splits.WithLabelValues("lost")}
	conversations := counterVec("conversations_total", "Placed requests that continue a response stored by one engine, by whether that engine is known and available.", "result")
	for u := range m.conversations {
		m.conversations[u] = conversations.WithLabelValues(cycle.ConversationUse(u).String())
	}
	ended := counterVec("ended_total", "Placed requests that ended, by completeness of the answer; unknown: the proxy does not send the end of answers to the picker.", "complete")
	m.ended = [3]prometheus.Counter{ended.WithLabelValues("false"), ended.WithLabelValues("true"), ended.WithLabelValues("unknown")}
	all = append(all, refusals, stages, computed, ended, conversations, splits, crossed, poolGauge(pool, "endpoints", "Endpoints in the pool.",
		func(*endpoint.Endpoint) float64 { return 1 }),
		poolGauge(pool, "endpoints_down", "Endpoints that do not answer.", func(ep *endpoint.Endpoint) float64 {
			if ep.Down() {
				return 1
			}
			return 0
		}),
		poolGauge(pool, "inflight_requests", "Requests of this replica in flight.",
			func(ep *endpoint.Endpoint) float64 {
				return float64(pool.LoadTracker().Local(ep, monotime.Now()).Requests)
			}),
		poolGauge(pool, "inflight_prefill_tokens", "Uncached prompt tokens of this replica's requests without a first token.",
			func(ep *endpoint.Endpoint) float64 {
				return float64(pool.LoadTracker().Local(ep, monotime.Now()).Prefill)
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "grapevine_picker_fullest_endpoint_share",
			Help: "Largest share of all in-flight requests at one endpoint: the requests that its loss would affect. 0 without requests.",
		}, func() float64 { return fullestShare(pool, monotime.Now()) }))
	var err error
	if m.ends, err = outcomes.New(pool, reg); err != nil || reg == nil {
		return m, err
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "grapevine_picker_" + name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "grapevine_picker_" + name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(histograms.Both(prometheus.HistogramOpts{Name: "grapevine_picker_" + name, Help: help, Buckets: buckets}))
}

// fullestShare returns the share of in-flight requests at the endpoint with the most.
func fullestShare(pool *endpoint.Pool, now time.Time) float64 {
	all, most := int64(0), int64(0)
	for _, ep := range pool.Snapshot().Endpoints {
		n := max(pool.LoadTracker().Load(ep, now).Requests, 0)
		all, most = all+n, max(most, n)
	}
	return float64(most) / float64(max(all, 1))
}

// poolGauge returns a gauge that sums f over the pool on collection.
func poolGauge(pool *endpoint.Pool, name, help string, f func(*endpoint.Endpoint) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "grapevine_picker_" + name, Help: help}, func() float64 {
		sum := 0.0
		for _, ep := range pool.Snapshot().Endpoints {
			sum += f(ep)
		}
		return sum
	})
}

func (m *metrics) refused(r *request.Request, err error) {
	why := request.ReasonOf(err)
	m.refusals[why].Inc()
	m.ends.Refused(r.Target, why.IsClientError())
}

// observe adds a duration to a histogram, with the id of the request's trace as the exemplar; "": none.
func observe(h prometheus.Histogram, d time.Duration, trace string) {
	if trace != "" {
		h.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	h.Observe(d.Seconds())
}

func (m *metrics) dispatched(took time.Duration, c *cycle.Cycle) {
	m.decisions.Inc()
	observe(m.took, took, c.Request.Trace.TraceID())
	m.candidates.Observe(float64(c.Candidates()))
	if c.First().InRemoteZone {
		m.crossed[crossingReason(c)].Inc()
	}
	if c.Request.Previous != "" {
		m.conversations[c.Conversation()].Inc()
	}
	for _, s := range c.Plan().Stages {
		m.stages[s.Kind][s.Outcome].Inc()
	}
}

// Reasons of crossings, as indices of metrics.crossed.
const (
	crossedForGain = iota
	crossedWithoutEndpoint
)

// crossingReason returns why the request leaves the zone.
func crossingReason(c *cycle.Cycle) int {
	for i := range int32(c.Candidates()) {
		if v := c.All(i); !v.InRemoteZone && !v.IsRemote() {
			return crossedForGain
		}
	}
	return crossedWithoutEndpoint
}

func (m *metrics) predicted(want float64, got time.Duration, trace string) {
	observe(m.ttft, got, trace)
	if want > 0 {
		m.ttftError.Observe(got.Seconds() / want)
	}
}

func (m *metrics) finished(f *flight, o request.Outcome) {
	complete := 0
	switch {
	case o.Unseen:
		complete = 2
	case o.Complete:
		complete = 1
	}
	m.ended[complete].Inc()
	m.ends.Ended(f.outcome(&o))
	if o.Usage.CachedSeen && !f.split() && f.fetched == 0 { // transferred blocks are no evidence about the cache
		m.predictedT.Add(float64(f.held.Run.Total()))
		m.cachedT.Add(float64(max(o.Usage.CachedTokens, 0)))
	}
	if o.Usage.Seen {
		m.promptT.Add(float64(max(o.Usage.PromptTokens, 0)))
	}
}
