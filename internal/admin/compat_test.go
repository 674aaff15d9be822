package admin

import (
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/request"
)

var t0 = time.Unix(1_700_000_000, 0)

// served simulates a successful request, one with an engine error, one in flight and one refused,
// in a pool of two.
func served(t *testing.T) *prometheus.Registry {
	t.Helper()
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Name: "a", Namespace: "ns", Addr: netip.MustParseAddrPort("10.0.0.1:8000")},
		{Name: "b", Namespace: "ns", Addr: netip.MustParseAddrPort("10.0.0.2:8000")},
	})
	eps := pool.Snapshot().Endpoints
	eps[0].SetGauges(endpoint.Gauges{At: t0, Values: gauge.Values{Waiting: 2, Running: 4, KVUse: .5}})
	eps[1].SetGauges(endpoint.Gauges{At: t0.Add(-time.Minute), Values: gauge.Values{Waiting: 90}})
	own := prometheus.NewRegistry()
	streams := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "grapevine_extproc_streams_total"}, []string{"end"})
	streams.WithLabelValues("complete").Add(3)
	streams.WithLabelValues("cancelled").Add(2)
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "grapevine_extproc_streams"})
	queue := func(name string, v float64, labels ...string) {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "grapevine_flow_" + name}, []string{"model", "priority"}[:len(labels)])
		g.WithLabelValues(labels...).Set(v)
		own.MustRegister(g)
	}
	queue("waiting_requests", 7, "base", "3")
	queue("waiting_bytes", 700, "base", "3")
	queue("places_in_flight", 30, "base")
	queue("places", 40, "base")
	own.MustRegister(streams, open)
	reg := prometheus.NewRegistry()
	m, err := NewCompat(CompatOptions{Pool: pool, PoolName: "llama", Own: own, Version: "v1", Now: func() time.Time { return t0 }}, reg)
	if err != nil {
		t.Fatal(err)
	}
	r := &request.Request{Model: "chat", Target: "base", Body: make([]byte, 100), Stream: true, Priority: 3}
	for _, o := range []request.Outcome{
		{At: t0.Add(2 * time.Second), Status: 200, Bytes: 500, Usage: request.Usage{Seen: true, CachedSeen: true, PromptTokens: 1000, OutputTokens: 10, CachedTokens: 600}},
		{At: t0.Add(time.Second), Status: 500},
	} {
		d := &request.Decision{}
		m.Watch(r, d, eps[0], t0)
		if o.Status == 200 {
			d.Observe(request.Event{Kind: request.EventFirstToken, At: t0.Add(300 * time.Millisecond)})
		}
		d.Done(o)
	}
	m.Watch(r, &request.Decision{}, eps[1], t0)
	m.Refused(r, request.Errorf(request.ReasonSaturated, "full"), time.Millisecond)
	return reg
}

func TestSeries(t *testing.T) {
	want := `
# HELP inference_pool_average_queue_size As other endpoint pickers serve it.
# TYPE inference_pool_average_queue_size gauge
inference_pool_average_queue_size{name="llama"} 2
# HELP llm_d_epp_average_kv_cache_utilization As other endpoint pickers serve it.
# TYPE llm_d_epp_average_kv_cache_utilization gauge
llm_d_epp_average_kv_cache_utilization{name="llama"} 0.5
# HELP llm_d_epp_extproc_streams_total As other endpoint pickers serve it.
# TYPE llm_d_epp_extproc_streams_total counter
llm_d_epp_extproc_streams_total{code="Canceled"} 2
llm_d_epp_extproc_streams_total{code="OK"} 3
# HELP llm_d_epp_flow_control_pool_saturation As other endpoint pickers serve it.
# TYPE llm_d_epp_flow_control_pool_saturation gauge
llm_d_epp_flow_control_pool_saturation{inference_pool="llama",stage="effective"} 0.75
# HELP llm_d_epp_flow_control_queue_size As other endpoint pickers serve it.
# TYPE llm_d_epp_flow_control_queue_size gauge
llm_d_epp_flow_control_queue_size{fairness_id="",inference_pool="llama",model_name="base",priority="3",target_model_name="base"} 7
# HELP llm_d_epp_ready_endpoints As other endpoint pickers serve it.
# TYPE llm_d_epp_ready_endpoints gauge
llm_d_epp_ready_endpoints{name="llama"} 2
# HELP llm_d_epp_request_error_total Requests that were refused, or answered with an error.
# TYPE llm_d_epp_request_error_total counter
llm_d_epp_request_error_total{error_code="ModelServerError",fairness_id="default-flow",model_name="chat",priority="3",target_model_name="base"} 1
llm_d_epp_request_error_total{error_code="ResourceExhausted",fairness_id="default-flow",model_name="chat",priority="3",target_model_name="base"} 1
# HELP llm_d_epp_request_running Requests in flight.
# TYPE llm_d_epp_request_running gauge
llm_d_epp_request_running{fairness_id="default-flow",model_name="chat",priority="3",target_model_name="base"} 1
# HELP llm_d_epp_request_total Requests.
# TYPE llm_d_epp_request_total counter
llm_d_epp_request_total{fairness_id="default-flow",model_name="chat",priority="3",target_model_name="base"} 4
# HELP llm_d_epp_scheduler_attempts_total Decisions.
# TYPE llm_d_epp_scheduler_attempts_total counter
llm_d_epp_scheduler_attempts_total{endpoint_name="",namespace="",port="",status="failure",target_model_name="base"} 1
llm_d_epp_scheduler_attempts_total{endpoint_name="a",namespace="ns",port="8000",status="success",target_model_name="base"} 2
llm_d_epp_scheduler_attempts_total{endpoint_name="b",namespace="ns",port="8000",status="success",target_model_name="base"} 1
`
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(want, -1) {
		names = append(names, m[1])
	}
	if err := testutil.GatherAndCompare(served(t), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// TestTable: every series in the manual is served with its labels, under both names.
func TestTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := served(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, f := range families {
		have[f.GetName()] = nil
		for _, l := range f.GetMetric()[0].GetLabel() {
			have[f.GetName()] = append(have[f.GetName()], l.GetName())
		}
	}
	_, table, ok := strings.Cut(string(page), "<!-- series -->")
	table, _, end := strings.Cut(table, "<!-- end of series -->")
	if !ok || !end {
		t.Fatal("docs/migrate.md has no series table")
	}
	n := 0
	for _, m := range regexp.MustCompile("`((?:llm_d|inference)_[a-z0-9_]+)(?:\\{([a-z_, ]*)\\})?`").FindAllStringSubmatch(table, -1) {
		n++
		labels, served := have[m[1]]
		if !served {
			t.Errorf("%s is not served", m[1])
			continue
		}
		delete(have, m[1])
		for l := range strings.SplitSeq(m[2], ",") {
			if l = strings.TrimSpace(l); l != "" && !strings.Contains(" "+strings.Join(labels, " ")+" ", " "+l+" ") {
				t.Errorf("%s has labels %q, want %s", m[1], labels, l)
			}
		}
	}
	for name := range have {
		t.Errorf("%s is served but not in the table", name)
	}
	if n < 40 {
		t.Errorf("%d series in the table", n)
	}
}

func TestValuesAreBounded(t *testing.T) {
	var l values
	for i := range maxValues {
		l.of(strconv.Itoa(i))
	}
	if l.of("more") != "other" || l.of("7") != "7" || len(l.seen) != maxValues {
		t.Errorf("%d values", len(l.seen))
	}
}
