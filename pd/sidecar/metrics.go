package sidecar

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests    *prometheus.CounterVec // by path: split, whole, passed, refused
	prefills    *prometheus.CounterVec // prefill legs by result
	retries     *prometheus.CounterVec // second decode legs by reason
	releases    *prometheus.CounterVec // requests that free blocks of disconnected clients
	seconds     prometheus.Histogram   // of successful prefill legs
	encodes     *prometheus.CounterVec // encode legs by result
	stripped    prometheus.Counter
	denied      prometheus.Counter
	unreachable prometheus.Counter
	unbudgeted  prometheus.Counter
	broken      prometheus.Counter
	deaths      *prometheus.CounterVec // engines that died with a request in flight, by role
	condemned   prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "grapevine", Subsystem: "sidecar", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		requests: counter("requests_total", "Requests by how they were served: split, whole, passed (not generating) or refused.", "served"),
		prefills: counter("prefills_total", "Prefill legs by outcome.", "outcome"),
		retries:  counter("decode_retries_total", "Second legs to the decode engine, by reason. It computes the prompt itself, except for reason stale.", "reason"),
		releases: counter("releases_total", "Requests that free blocks of clients that disconnected.", "outcome"),
		encodes:  counter("encodes_total", "Encode legs by outcome.", "outcome"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "grapevine", Subsystem: "sidecar", Name: "prefill_seconds", Help: "Duration of prefill legs that succeeded.",
			Buckets: prometheus.ExponentialBuckets(.005, 2, 15),
		}),
		stripped:    counter("stripped_total", "Requests from which KV transfer fields were removed.").WithLabelValues(),
		denied:      counter("targets_denied_total", "Requests that named an endpoint which was neither signed nor listed. It was left out; without another one the decode engine computes the prompt.").WithLabelValues(),
		unreachable: counter("engine_unreachable_total", "Requests that could not be sent to the decode engine.").WithLabelValues(),
	}
	m.broken = counter("broken_total", "Answers that ended early because the decode engine failed after the first content.").WithLabelValues()
	m.deaths = counter("deaths_total", "Requests that were in flight at an engine when it died, before their first content, by the engine's role.", "role")
	m.condemned = counter("suspects_refused_total", "Requests answered with 500 because two engines died while computing them.").WithLabelValues()
	m.unbudgeted = counter("retries_denied_total", "Second prefill legs that were skipped because there were too many recently.").WithLabelValues()
	r.MustRegister(m.seconds)
	return m
}
