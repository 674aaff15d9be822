package tracing

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// queue passes ended spans to the SDK's batch processor. It bounds the number of spans in the
// processor and counts dropped spans, and it keeps the state of exports. Ending a span never blocks.
type queue struct {
	sdktrace.SpanProcessor // the batch processor
	most                   int64
	endpoint               string
	log                    *slog.Logger
	stop                   context.Context // ends when unfinished exports must end
	abort                  context.CancelFunc

	pending                   atomic.Int64 // spans in the processor
	exported, dropped, failed atomic.Uint64
	closed                    atomic.Bool

	mu     sync.Mutex
	reason string // of the last export's failure, "" if it succeeded
}

// newQueue returns a queue in front of an exporter.
func newQueue(to sdktrace.SpanExporter, endpoint string, log *slog.Logger) *queue {
	q := &queue{most: maxQueue(), endpoint: endpoint, log: log}
	q.stop, q.abort = context.WithCancel(context.Background())
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(&exporter{to, q}, sdktrace.WithMaxQueueSize(int(q.most)))
	return q
}

// maxQueue returns OTEL_BSP_MAX_QUEUE_SIZE, or its default.
func maxQueue() int64 {
	if n, err := strconv.ParseInt(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), 10, 32); err == nil && n > 0 {
		return n
	}
	return sdktrace.DefaultMaxQueueSize
}

// OnEnd implements sdktrace.SpanProcessor.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.pending.Add(1) > q.most || q.closed.Load() {
		q.pending.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// Shutdown implements sdktrace.SpanProcessor.
func (q *queue) Shutdown(ctx context.Context) error {
	q.closed.Store(true)
	return q.SpanProcessor.Shutdown(ctx)
}

// exporter counts the spans that pass it.
type exporter struct {
	sdktrace.SpanExporter
	q *queue
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, because the queue reports it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.q.pending.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.q.stop, cancel)()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.q.note(err, len(spans))
	return nil
}

// note records the result of an export, and logs it if it differs from the last one.
func (q *queue) note(err error, spans int) {
	if err == nil {
		q.exported.Add(uint64(spans))
	} else {
		q.failed.Add(uint64(spans))
	}
	q.mu.Lock()
	before := q.reason
	if q.reason = ""; err != nil {
		q.reason = err.Error()
	}
	q.mu.Unlock()
	switch {
	case err == nil && before != "":
		q.log.Info("spans are exported again", "endpoint", q.endpoint)
	case err != nil && before == "":
		q.log.Warn("spans cannot be exported", "endpoint", q.endpoint, "error", err, "failed", q.failed.Load(), "dropped", q.dropped.Load())
	}
}

func (q *queue) failing() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reason == "" {
		return ""
	}
	return q.endpoint + ": " + q.reason
}

var spansDesc = prometheus.NewDesc("grapevine_tracing_spans_total", "Spans of sampled requests by result: exported to the collector, failed (the collector did not accept them), or dropped because the queue was full.", []string{"result"}, nil)

// Describe implements prometheus.Collector.
func (q *queue) Describe(ch chan<- *prometheus.Desc) { ch <- spansDesc }

// Collect implements prometheus.Collector.
func (q *queue) Collect(ch chan<- prometheus.Metric) {
	for result, n := range map[string]*atomic.Uint64{"exported": &q.exported, "failed": &q.failed, "dropped": &q.dropped} {
		ch <- prometheus.MustNewConstMetric(spansDesc, prometheus.CounterValue, float64(n.Load()), result)
	}
}
