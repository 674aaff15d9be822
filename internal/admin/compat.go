package admin

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// maxValues is the maximum number of values of a label from requests.
const maxValues = 1000

// CompatOptions configure NewCompat. All are required except Stale.
type CompatOptions struct {
	Pool     *endpoint.Pool
	PoolName string        // label "name" and "inference_pool"
	Stale    time.Duration // age above which an endpoint's gauges are ignored; 0: two seconds
	Version  string
	Own      prometheus.Gatherer // this program's metrics, from which some are derived
	Now      func() time.Time
}

// Compat serves the metrics of other endpoint pickers under their names and labels, so that
// dashboards, alerts and autoscalers keep working after a migration. It covers llm-d's router and
// the older names of the Gateway API inference extension. Metrics without an equivalent are
// omitted. Safe for concurrent use.
type Compat struct {
	o CompatOptions

	requests, errors             twin[*prometheus.CounterVec]
	duration, asked, answered    twin[*prometheus.HistogramVec]
	input, output, cached, ntpot twin[*prometheus.HistogramVec]
	scheduling                   twin[*prometheus.HistogramVec]
	attempts                     twin[*prometheus.CounterVec]
	ttft                         *prometheus.HistogramVec
	running                      *prometheus.GaugeVec
	runningOlder                 *prometheus.GaugeVec

	models, targets, flows values
}

// NewCompat registers the series with reg.
func NewCompat(o CompatOptions, reg prometheus.Registerer) (*Compat, error) {
	if o.Stale <= 0 {
		o.Stale = 2 * time.Second
	}
	m := &Compat{
		o:        o,
		requests: counters("request_total", requestLabels, objective+"request_total", []string{"model_name", "target_model_name", "priority"}, "Requests."),
		errors: counters("request_error_total", append(requestLabels[:4:4], "error_code"), objective+"request_error_total",
			append(modelLabels[:2:2], "error_code"), "Requests that were refused, or answered with an error."),
		duration:   histograms("request_duration_seconds", requestLabels, objective+"request_duration_seconds", durations, "Time from request to end of answer."),
		asked:      histograms("request_size_bytes", requestLabels, objective+"request_sizes", sizes, "Size of request bodies."),
		answered:   histograms("response_size_bytes", requestLabels, objective+"response_sizes", sizes, "Size of answers whose bodies were read."),
		input:      histograms("request_input_tokens", requestLabels, objective+"input_tokens", tokens, "Prompt tokens, as engines reported them."),
		output:     histograms("request_output_tokens", requestLabels, objective+"output_tokens", tokens, "Generated tokens, as engines reported them."),
		cached:     histograms("request_cached_tokens", requestLabels, objective+"prompt_cached_tokens", tokens, "Cached prompt tokens, as engines reported them."),
		ntpot:      histograms("request_ntpot_seconds", requestLabels, objective+"normalized_time_per_output_token_seconds", perToken, "Time per generated token, the first included."),
		scheduling: histograms("scheduler_e2e_duration_seconds", nil, extension+"scheduler_e2e_duration_seconds", scheduler, "Time of a decision."),
		attempts: counters("scheduler_attempts_total", []string{"status", "target_model_name", "endpoint_name", "namespace", "port"},
			extension+"scheduler_attempts_total", []string{"status", "target_model_name", "pod_name", "namespace", "port"}, "Decisions."),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: ours + "request_ttft_seconds", Help: "Time to first token, where observed.",
			Buckets: durations[:23]}, append(requestLabels[:4:4], "streaming")),
		running:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: ours + "request_running", Help: "Requests in flight."}, requestLabels),
		runningOlder: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: objective + "running_requests", Help: "Requests in flight."}, requestLabels[:1]),
	}
	list := []prometheus.Collector{m.ttft, m.running, m.runningOlder, &poolCollector{o}}
	for _, t := range []twin[*prometheus.CounterVec]{m.requests, m.errors, m.attempts} {
		list = append(list, t.newer, t.older)
	}
	for _, t := range []twin[*prometheus.HistogramVec]{m.duration, m.asked, m.answered, m.input, m.output, m.cached, m.ntpot, m.scheduling} {
		list = append(list, t.newer, t.older)
	}
	for _, c := range list {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// values limits the values of one label.
type values struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// of returns v in printable form, or "other" above the limit. Invalid UTF-8 in a label would panic.
func (l *values) of(v string) string {
	v = budget.PrintableName(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[v]; ok {
		return v
	}
	if len(l.seen) >= maxValues {
		return "other"
	}
	if l.seen == nil {
		l.seen = map[string]struct{}{}
	}
	v = strings.Clone(v) // it points into a request's headers
	l.seen[v] = struct{}{}
	return v
}

// labels are the values of requestLabels.
type labels [4]string

func (m *Compat) labels(r *request.Request) labels {
	fairness := r.FairnessID
	if fairness == "" {
		fairness = "default-flow"
	}
	return labels{m.models.of(r.Model), m.targets.of(r.Target), m.flows.of(fairness), strconv.Itoa(r.Priority)}
}

// Refused counts a request that was not placed.
func (m *Compat) Refused(r *request.Request, err error, took time.Duration) {
	l := m.labels(r)
	m.requests.newer.WithLabelValues(l[:]...).Inc()
	m.requests.older.WithLabelValues(l[0], l[1], l[3]).Inc()
	m.failed(l, codeOf(request.ReasonOf(err)))
	m.decided("failure", l, endpoint.Spec{}, took)
}

func (m *Compat) failed(l labels, code string) {
	m.errors.newer.WithLabelValues(append(l[:], code)...).Inc()
	m.errors.older.WithLabelValues(l[0], l[1], code).Inc()
}

func (m *Compat) decided(status string, l labels, at endpoint.Spec, took time.Duration) {
	port := ""
	if at.Addr.IsValid() {
		port = strconv.Itoa(int(at.Addr.Port()))
	}
	for _, c := range []*prometheus.CounterVec{m.attempts.newer, m.attempts.older} {
		c.WithLabelValues(status, l[1], at.Name, at.Namespace, port).Inc()
	}
	m.scheduling.newer.WithLabelValues().Observe(took.Seconds())
	m.scheduling.older.WithLabelValues().Observe(took.Seconds())
}

// Watch counts a request for ep and follows d until it ends. start is when its decision began.
func (m *Compat) Watch(r *request.Request, d *request.Decision, ep *endpoint.Endpoint, start time.Time) {
	l := m.labels(r)
	m.requests.newer.WithLabelValues(l[:]...).Inc()
	m.requests.older.WithLabelValues(l[0], l[1], l[3]).Inc()
	m.asked.newer.WithLabelValues(l[:]...).Observe(float64(len(r.Body)))
	m.asked.older.WithLabelValues(l[0], l[1]).Observe(float64(len(r.Body)))
	var at endpoint.Spec
	if ep != nil {
		at = ep.Spec
	}
	m.decided("success", l, at, m.o.Now().Sub(start))
	running, older := m.running.WithLabelValues(l[:]...), m.runningOlder.WithLabelValues(l[0])
	running.Inc()
	older.Inc()
	streaming := strconv.FormatBool(r.Stream)
	observe, release := d.Observe, d.Release
	d.Observe = func(e request.Event) {
		if e.Kind == request.EventFirstToken {
			m.ttft.WithLabelValues(append(l[:], streaming)...).Observe(e.At.Sub(start).Seconds())
		}
		if observe != nil {
			observe(e)
		}
	}
	d.Release = func(o request.Outcome) {
		running.Dec()
		older.Dec()
		m.ended(l, o, o.At.Sub(start).Seconds())
		if release != nil {
			release(o)
		}
	}
}

// ended records a request's outcome.
func (m *Compat) ended(l labels, o request.Outcome, took float64) {
	note := func(t twin[*prometheus.HistogramVec], v float64) {
		t.newer.WithLabelValues(l[:]...).Observe(v)
		t.older.WithLabelValues(l[0], l[1]).Observe(v)
	}
	if code := codeOfStatus(o.Status); code != "" {
		m.failed(l, code)
	}
	note(m.duration, took)
	if o.Bytes > 0 {
		note(m.answered, float64(o.Bytes))
	}
	if !o.Usage.Seen {
		return
	}
	note(m.input, float64(o.Usage.PromptTokens))
	note(m.output, float64(o.Usage.OutputTokens))
	if o.Usage.CachedSeen {
		note(m.cached, float64(o.Usage.CachedTokens))
	}
	if n := o.Usage.OutputTokens; n > 0 {
		note(m.ntpot, took/float64(n))
	}
}

// codeOf returns the error code of a refusal.
func codeOf(r request.Reason) string {
	switch r {
	case request.ReasonBadRequest, request.ReasonTooLarge:
		return "BadRequest"
	case request.ReasonModelNotFound:
		return "NotFound"
	case request.ReasonForbidden:
		return "Forbidden"
	case request.ReasonNotHeld:
		return "PreconditionFailed"
	case request.ReasonSaturated:
		return "ResourceExhausted"
	case request.ReasonInternal:
		return "Internal"
	default:
		return "ServiceUnavailable"
	}
}

// codeOfStatus returns the error code of an engine's response, or "".
func codeOfStatus(status int) string {
	switch {
	case status < 400:
		return ""
	case status == 401:
		return "Unauthorized"
	case status == 403:
		return "Forbidden"
	case status == 404:
		return "NotFound"
	case status == 412:
		return "PreconditionFailed"
	case status == 429:
		return "ResourceExhausted"
	case status < 500:
		return "BadRequest"
	default:
		return "ModelServerError"
	}
}
