package page

import (
	"fmt"
	"os"
	"sync"
)

// httpRoutes are the routes that the page has request histograms of.
var httpRoutes = []struct{ method, path string }{
	{"POST", "/v1/chat/completions"}, {"POST", "/v1/completions"}, {"GET", "/v1/models"}, {"GET", "/health"},
	{"POST", "/tokenize"}, {"POST", "/detokenize"}, {"GET", "/version"}, {"GET", "/load"}, {"GET", "/ping"},
	{"POST", "/v1/chat/completions/render"}, {"POST", "/v1/completions/render"}, {"POST", "/v1/load_lora_adapter"},
	{"POST", "/v1/unload_lora_adapter"}, {"POST", "/reset_prefix_cache"}, {"GET", "/kv_event_sources"},
	{"POST", "/v1/responses"}, {"POST", "/v1/messages"}, {"POST", "/v1/embeddings"}, {"POST", "/inference/v1/generate"},
	{"POST", "/pooling"}, {"POST", "/classify"}, {"POST", "/score"}, {"POST", "/v1/score"}, {"POST", "/rerank"}, {"POST", "/v1/rerank"},
	{"POST", "/v1/audio/transcriptions"}, {"POST", "/v1/audio/translations"}, {"POST", "/invocations"}, {"POST", "/sleep"},
	{"POST", "/wake_up"}, {"GET", "/is_sleeping"}, {"none", "none"},
}

var (
	routeBuckets = []float64{.1, .5, 1}
	highBuckets  = []float64{.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
)

// HTTPMeter counts HTTP requests by route. It is safe for concurrent use.
type HTTPMeter struct {
	mu     sync.Mutex
	high   histogram
	routes []routeMeter // as httpRoutes
}

type routeMeter struct {
	byClass  [6]uint64 // by hundreds of the status
	in, out  float64   // bytes
	requests uint64
	seconds  histogram
}

// NewHTTPMeter returns a meter with zero counts.
func NewHTTPMeter() *HTTPMeter {
	m := &HTTPMeter{high: newHistogram(highBuckets), routes: make([]routeMeter, len(httpRoutes))}
	for i := range m.routes {
		m.routes[i].seconds = newHistogram(routeBuckets)
	}
	return m
}

// Exchange is one HTTP request and its response.
type Exchange struct {
	Method, Path string
	Status       int
	In, Out      int64 // bytes; In is negative when unknown
	Seconds      float64
}

// Observe counts one request.
func (m *HTTPMeter) Observe(x Exchange) {
	at := len(httpRoutes) - 1
	for i, r := range httpRoutes {
		if r.method == x.Method && r.path == x.Path {
			at = i
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.routes[at]
	r.byClass[min(max(x.Status/100, 0), 5)]++
	r.requests++
	r.in += float64(max(x.In, 0))
	r.out += float64(x.Out)
	r.seconds.observe(x.Seconds)
	m.high.observe(x.Seconds)
}

func (m *HTTPMeter) snapshot() *HTTPMeter {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &HTTPMeter{high: m.high.clone(), routes: make([]routeMeter, len(m.routes))}
	copy(s.routes, m.routes)
	for i := range s.routes {
		s.routes[i].seconds = m.routes[i].seconds.clone()
	}
	return s
}

func (p *Page) httpFamilies() {
	p.family("http_requests_total", "counter", "Total number of requests by method, status and handler.")
	for i, r := range httpRoutes {
		for _, class := range []int{2, 4, 5} {
			labels := fmt.Sprintf(`{handler=%q,method=%q,status="%dxx"}`, r.path, r.method, class)
			p.value("http_requests_total"+labels, func(v *view) float64 { return float64(v.http.routes[i].byClass[class]) })
		}
	}
	bytes := func(name, help string, read func(*routeMeter) float64) {
		p.family(name, "summary", help)
		for i, r := range httpRoutes {
			labels := fmt.Sprintf(`{handler=%q}`, r.path)
			p.value(name+"_count"+labels, func(v *view) float64 { return float64(v.http.routes[i].requests) })
			p.value(name+"_sum"+labels, func(v *view) float64 { return read(&v.http.routes[i]) })
			p.created(name, labels)
		}
	}
	bytes("http_request_size_bytes", "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No percentile calculated.",
		func(r *routeMeter) float64 { return r.in })
	bytes("http_response_size_bytes", "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No percentile calculated.",
		func(r *routeMeter) float64 { return r.out })
	const high = "http_request_duration_highr_seconds"
	p.family(high, "histogram", "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations.")
	p.histogram(high, "", highBuckets, func(v *view) *histogram { return &v.http.high })
	const route = "http_request_duration_seconds"
	p.family(route, "histogram", "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important.")
	for i, r := range httpRoutes {
		labels := fmt.Sprintf(`{handler=%q,method=%q}`, r.path, r.method)
		p.histogram(route, labels, routeBuckets, func(v *view) *histogram { return &v.http.routes[i].seconds })
	}
}

// python writes the process metrics that a Python process exports.
func (p *Page) python() {
	for _, g := range []struct{ name, help string }{
		{"python_gc_objects_collected_total", "Objects collected during gc"},
		{"python_gc_objects_uncollectable_total", "Uncollectable objects found during GC"},
		{"python_gc_collections_total", "Number of times this generation was collected"},
	} {
		p.family(g.name, "counter", g.help)
		for gen := range 3 {
			p.fixed(fmt.Sprintf(`%s{generation="%d"}`, g.name, gen), float64(int(1000)>>(3*gen)))
		}
	}
	p.family("python_info", "gauge", "Python platform information")
	p.fixed(`python_info{implementation="CPython",major="3",minor="12",patchlevel="11",version="3.12.11"}`, 1)
	gauge := func(name, help string, read func(*view) float64) {
		p.family(name, "gauge", help)
		p.value(name, read)
	}
	page := float64(os.Getpagesize())
	gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", func(*view) float64 { return page * 24_000_000 })
	gauge("process_resident_memory_bytes", "Resident memory size in bytes.", func(*view) float64 { return page * 1_400_000 })
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", func(v *view) float64 { return v.start })
	p.family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
	p.value("process_cpu_seconds_total", func(v *view) float64 { return v.now - v.start })
	gauge("process_open_fds", "Number of open file descriptors.", func(*view) float64 { return 93 })
	gauge("process_max_fds", "Maximum number of open file descriptors.", func(*view) float64 { return 1_048_576 })
}
