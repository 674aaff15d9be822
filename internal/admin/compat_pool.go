package admin

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// poolCollector reads the pool's gauges, and derived metrics, on each scrape.
type poolCollector struct{ o CompatOptions }

// Describe implements prometheus.Collector. It sends nothing, because the series depend on the
// pool.
func (*poolCollector) Describe(chan<- *prometheus.Desc) {}

// out sends series.
type out chan<- prometheus.Metric

func (c out) send(kind prometheus.ValueType, name string, names []string, v float64, values ...string) {
	c <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, "As other endpoint pickers serve it.", names, nil), kind, v, values...)
}

func (c out) gauge(name string, names []string, v float64, values ...string) {
	c.send(prometheus.GaugeValue, name, names, v, values...)
}

// Collect implements prometheus.Collector.
func (p *poolCollector) Collect(ch chan<- prometheus.Metric) {
	c, now := out(ch), p.o.Now()
	var waiting, runs, kv figures
	ready := 0
	named := []string{"name"}
	for _, ep := range p.o.Pool.Snapshot().Endpoints {
		if !ep.Down() {
			ready++
		}
		g := ep.Gauges()
		c.gauge(ours+"per_endpoint_queue_size", []string{"name", "model_server_endpoint"}, float64(g.Waiting), p.o.PoolName, ep.Name)
		c.gauge(pool+"per_pod_queue_size", []string{"name", "model_server_pod"}, float64(g.Waiting), p.o.PoolName, ep.Name)
		if !g.At.IsZero() && now.Sub(g.At) <= p.o.Stale {
			waiting.add(float64(g.Waiting))
			runs.add(float64(g.Running))
			kv.add(g.KVUse)
		}
	}
	for name, f := range map[string]*figures{"queue_size": &waiting, "running_requests": &runs, "kv_cache_utilization": &kv} {
		mean, deviation := f.result()
		c.gauge(ours+"average_"+name, named, mean, p.o.PoolName)
		c.gauge(pool+"average_"+name, named, mean, p.o.PoolName)
		c.gauge(ours+"std_dev_"+name, named, deviation, p.o.PoolName)
	}
	c.gauge(ours+"ready_endpoints", named, float64(ready), p.o.PoolName)
	c.gauge(pool+"ready_pods", named, float64(ready), p.o.PoolName)
	c.gauge(ours+"info", []string{"commit", "build_ref"}, 1, p.o.Version, p.o.Version)
	c.gauge(extension+"info", []string{"commit", "build_ref"}, 1, p.o.Version, p.o.Version)
	p.derive(c)
}

// figures accumulate the mean and deviation of one gauge.
type figures struct{ n, sum, squares float64 }

func (f *figures) add(v float64) { f.n, f.sum, f.squares = f.n+1, f.sum+v, f.squares+v*v }

func (f *figures) result() (mean, deviation float64) {
	if f.n == 0 {
		return 0, 0
	}
	mean = f.sum / f.n
	return mean, math.Sqrt(max(f.squares/f.n-mean*mean, 0))
}

// streamCodes are gRPC codes by this program's stream results.
var streamCodes = map[string]string{
	"complete": "OK", "closed": "OK", "answered": "OK", "cancelled": "Canceled", "starved": "ResourceExhausted", "failed": "Unknown", "panicked": "Internal",
}

// queues are the waiting requests. If there are none, an empty queue is reported, so that sums over
// queues exist.
type queues struct {
	seen         bool
	held, places float64
}

// queueOf identifies a queue.
type queueOf struct{ model, priority string }

func (q *queues) waiting(c out, p *poolCollector, name string, of queueOf, v float64) {
	labels := []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}
	for _, prefix := range []string{ours, extension} {
		c.gauge(prefix+name, labels, v, "", of.priority, p.o.PoolName, of.model, of.model)
	}
	q.seen = true
}

func (q *queues) end(c out, p *poolCollector) {
	if !q.seen {
		q.waiting(c, p, flowSize, queueOf{priority: "0"}, 0)
		q.waiting(c, p, flowBytes, queueOf{priority: "0"}, 0)
	}
	if q.places == 0 {
		return // flow control is off or unused, so the pool's saturation is unknown
	}
	for _, prefix := range []string{ours, extension} {
		c.gauge(prefix+"flow_control_pool_saturation", []string{"inference_pool", "stage"}, q.held/q.places, p.o.PoolName, "effective")
	}
}

// Names of queue metrics in other pickers.
const (
	flowSize  = "flow_control_queue_size"
	flowBytes = "flow_control_queue_bytes"
)

// derive serves this program's metrics under other names.
func (p *poolCollector) derive(c out) {
	families, err := p.o.Own.Gather()
	if err != nil && len(families) == 0 {
		return
	}
	var q queues
	polls, skipped, streams := 0.0, 0.0, map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "grapevine_flow_waiting_requests":
				q.waiting(c, p, flowSize, queueOf{label(m, "model"), label(m, "priority")}, m.GetGauge().GetValue())
			case "grapevine_flow_waiting_bytes":
				q.waiting(c, p, flowBytes, queueOf{label(m, "model"), label(m, "priority")}, m.GetGauge().GetValue())
			case "grapevine_flow_places_in_flight":
				q.held += m.GetGauge().GetValue()
			case "grapevine_flow_places":
				q.places += m.GetGauge().GetValue()
			case "grapevine_extproc_streams":
				c.gauge(ours+"extproc_streams_inflight", nil, m.GetGauge().GetValue())
			case "grapevine_extproc_streams_total":
				streams[streamCodes[label(m, "end")]] += m.GetCounter().GetValue()
			case "grapevine_scrape_readings_total":
				if label(m, "result") != "ok" {
					polls += m.GetCounter().GetValue()
				}
			case "grapevine_scrape_skipped_total":
				skipped += m.GetCounter().GetValue()
			}
		}
	}
	q.end(c, p)
	for code, n := range streams {
		c.send(prometheus.CounterValue, ours+"extproc_streams_total", []string{"code"}, n, strings.TrimSpace(code))
	}
	for _, prefix := range []string{ours, "llm_d_inference_scheduler_"} {
		c.send(prometheus.CounterValue, prefix+"datalayer_poll_errors_total", []string{"source_type"}, polls, "metrics-data-source")
		c.send(prometheus.CounterValue, prefix+"datalayer_extract_errors_total", []string{"source_type", "extractor_type"}, skipped, "metrics-data-source", "core-metrics-extractor")
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
