package extproc

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/histograms"
)

// Label values. Every other value of "result" is the label of a rejection.
const (
	resultPlaced      = "placed"
	resultAnswered    = "answered"
	directionRequest  = "request"
	directionResponse = "response"

	endComplete  = "complete"  // the end of the response was observed
	endAnswered  = "answered"  // the picker responded instead of the engine
	endEvicted   = "evicted"   // the running request was evicted
	endClosed    = "closed"    // the proxy closed the stream normally
	endCancelled = "cancelled" // the proxy reset the stream, as many do after a request
	endFailed    = "failed"    // transport or protocol error
	endStarved   = "starved"   // the body was too slow, or memory was short
	endPanicked  = "panicked"  // a bug in this process
)

type metrics struct {
	active   prometheus.Gauge
	streams  *prometheus.CounterVec // by end
	requests *prometheus.CounterVec // by result
	choose   prometheus.Histogram
	lifetime prometheus.Histogram
	bytes    *prometheus.CounterVec // by direction
	served   *prometheus.CounterVec // by serving endpoint
	shed     prometheus.Counter
	stripped prometheus.Counter
	codings  *prometheus.CounterVec // by result
	crowded  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grapevine_extproc_streams", Help: "Open ext_proc streams."}),
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_extproc_streams_total", Help: "Ended ext_proc streams by how they ended."}, []string{"end"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_extproc_requests_total", Help: "Requests by result: placed, answered in the engines' place, or the reason of the refusal."}, []string{"result"}),
		choose: prometheus.NewHistogram(histograms.Both(prometheus.HistogramOpts{
			Name: "grapevine_extproc_choose_duration_seconds", Help: "Time from a complete request to its decision.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 4, 11)})),
		lifetime: prometheus.NewHistogram(histograms.Both(prometheus.HistogramOpts{
			Name: "grapevine_extproc_stream_duration_seconds", Help: "Lifetime of ext_proc streams.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 11)})),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_extproc_body_bytes_total", Help: "Body bytes that passed through, by direction."}, []string{"direction"}),
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_extproc_served_total", Help: "Answers by the endpoint that gave them: chosen first, another named one, an unnamed one, or unknown where the proxy does not report it."}, []string{"by"}),
	}
	m.shed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_extproc_shed_total", Help: "Streams that were ended while they waited for their bodies because memory was short."})
	m.stripped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_extproc_stripped_members_total", Help: "Members that only proxies may set, removed from request bodies."})
	m.crowded = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_extproc_crowded_requests_total", Help: "Requests with so many or so large headers that some of the picker's were left out, to stay within the proxy's limits."})
	m.codings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_extproc_compressed_bodies_total", Help: "Compressed request bodies by result: decoded, or why the request was placed without its body (unknown coding, limit, memory, damaged)."}, []string{"result"})
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.active, m.streams, m.requests, m.choose, m.lifetime, m.bytes, m.served, m.shed, m.stripped, m.codings, m.crowded} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
