package events

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer"
)

// Label values.
const (
	resultOK     = "ok"
	resultFailed = "failed"
	whatMessage  = "message"
	whatBatch    = "batch"
	whatEvent    = "event"
	pathLive     = "live"
	pathReplay   = "replay"
)

// metrics holds the counters of a Manager. Label values are constants, except for the state of each
// stream.
type metrics struct {
	registry  prometheus.Registerer
	all       []prometheus.Collector
	batches   *prometheus.CounterVec
	blocks    *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	malformed *prometheus.CounterVec
	connects  *prometheus.CounterVec
	replays   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	refused   *prometheus.CounterVec
	unknown   prometheus.Counter
	replaying prometheus.Gauge
	live      prometheus.Counter
	replayed  prometheus.Counter
	stored    prometheus.Counter
	removed   prometheus.Counter
}

func newMetrics(m *Manager, registry prometheus.Registerer) *metrics {
	x := &metrics{registry: registry}
	vec := func(name, help string, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "grapevine", Subsystem: "events", Name: name, Help: help}, []string{label})
		x.all = append(x.all, c)
		return c
	}
	x.batches = vec("batches_total", "Event batches applied, from the live stream or from a replay.", "path")
	x.blocks = vec("blocks_total", "Blocks in applied events, by what happened to them.", "op")
	x.skipped = vec("skipped_total", "Events that left no trace in the index, by reason.", "reason")
	x.malformed = vec("malformed_total", "Messages, batches and events that could not be read.", "what")
	x.connects = vec("connects_total", "Attempts to connect to an event stream.", "result")
	x.replays = vec("replays_total", "Replays of past batches.", "result")
	x.failures = vec("trouble_total", "Gaps, batches given up, engines restarted, rebuilds, duplicates.", "kind")
	x.refused = vec("inbound_refused_total", "Connections, and messages on them, that publishers which dial in were not believed, by reason.", "reason")
	x.unknown = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "grapevine", Subsystem: "events", Name: "unknown_total", Help: "Events of kinds that are not known.",
	})
	x.replaying = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "grapevine", Subsystem: "events", Name: "replays_running", Help: "Replays under way.",
	})
	x.all = append(x.all, x.unknown, x.replaying, newStreamCollector(m))
	x.live, x.replayed = x.batches.WithLabelValues(pathLive), x.batches.WithLabelValues(pathReplay)
	x.stored, x.removed = x.blocks.WithLabelValues("stored"), x.blocks.WithLabelValues("removed")
	if registry != nil {
		registry.MustRegister(x.all...)
	}
	return x
}

func (x *metrics) unregister() {
	if x.registry == nil {
		return
	}
	for _, c := range x.all {
		x.registry.Unregister(c)
	}
}

// count adds the effect of one batch. The caller holds mu.
func (s *subscriber) count(b *decode.Batch, applied indexer.ApplyStats) {
	x := s.m.metrics
	if s.replaying {
		x.replayed.Inc()
	} else {
		x.live.Inc()
	}
	if b.Unknown > 0 {
		x.unknown.Add(float64(b.Unknown))
	}
	if b.Malformed > 0 {
		x.malformed.WithLabelValues(whatEvent).Add(float64(b.Malformed))
	}
	now := s.tr.Stats()
	was := &s.seen
	x.stored.Add(float64(now.Stored - was.Stored))
	x.removed.Add(float64(now.Removed - was.Removed))
	rest := now
	rest.Stored, rest.Removed = was.Stored, was.Removed
	if rest != *was {
		s.countRare(&now)
	}
	s.seen = now
	for i, n := range [...]int{applied.UnknownParent, applied.UnknownRemove, applied.Refused} {
		if n > 0 {
			x.blocks.WithLabelValues([...]string{"orphaned", "removed_unknown", "refused"}[i]).Add(float64(n))
		}
	}
	if s.order.Counts() != s.counted {
		s.countFailure()
	}
}

func (s *subscriber) countRare(now *translate.Stats) {
	x, was := s.m.metrics, &s.seen
	for _, c := range []struct {
		op       string
		now, was uint64
	}{
		{"moved", now.Moved, was.Moved},
		{"cleared", now.Clears, was.Clears},
		{"parked", now.Parked, was.Parked},
		{"attached", now.Attached, was.Attached},
		{"lost", now.Lost, was.Lost},
		{"non_canonical", now.NonCanonical, was.NonCanonical},
		{"unrendered", now.Unrendered, was.Unrendered},
		{"reported_again", now.Reports, was.Reports},
	} {
		if c.now != c.was {
			x.blocks.WithLabelValues(c.op).Add(float64(c.now - c.was))
		}
	}
	s.view.answered.Store(now.Answered)
	s.view.narrow.Store(now.Narrow)
	if now.Skipped[translate.SkipGroup] > 0 {
		s.view.sparse.Store(true)
	}
	for i := range now.Skipped {
		if n := now.Skipped[i] - was.Skipped[i]; n > 0 {
			x.skipped.WithLabelValues(translate.Skip(i).String()).Add(float64(n))
		}
	}
}

func (s *subscriber) countFailure() {
	x, now, was := s.m.metrics, s.order.Counts(), s.counted
	for _, c := range []struct {
		kind     string
		now, was uint64
	}{
		{"gap", now.Gaps, was.Gaps},
		{"lost_batch", now.Lost, was.Lost},
		{"restart", now.Restarts, was.Restarts},
		{"rebuild", now.Rebuilds, was.Rebuilds},
		{"duplicate", now.Duplicates, was.Duplicates},
	} {
		if c.now != c.was {
			x.failures.WithLabelValues(c.kind).Add(float64(c.now - c.was))
		}
	}
	s.counted = now
}

// streamCollector exports the state of each stream on scrape, so that removed streams leave no
// series.
type streamCollector struct {
	m                  *Manager
	state, behind, lag *prometheus.Desc
}

func newStreamCollector(m *Manager) *streamCollector {
	labels := []string{"endpoint", "rank"}
	return &streamCollector{
		m:      m,
		state:  prometheus.NewDesc("grapevine_events_state", "State of an event stream: 1 for the state that it is in.", append(labels, "state"), nil),
		behind: prometheus.NewDesc("grapevine_events_behind_batches", "Batches known to exist and not applied.", labels, nil),
		lag:    prometheus.NewDesc("grapevine_events_lag_seconds", "Age of the newest applied batch when it arrived.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *streamCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.behind, c.lag} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *streamCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.m.opt.Now().UnixNano()
	for _, ranks := range *c.m.view.Load() {
		for _, s := range ranks {
			k, rank := s.knowledge(now), strconv.Itoa(int(s.src.Rank))
			gauge(c.state, 1, s.name, rank, k.State.String())
			gauge(c.behind, float64(k.Behind), s.name, rank)
			gauge(c.lag, k.Lag.Seconds(), s.name, rank)
		}
	}
}
