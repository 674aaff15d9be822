package scrape

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Defaults of Options.
const (
	defaultSlow       = time.Second
	defaultFast       = 200 * time.Millisecond
	defaultTimeout    = 2 * time.Second
	defaultMaxBackoff = 10 * time.Second
	defaultMaxPage    = 8 << 20
	defaultPath       = "/metrics"
)

// Options configures a Poller. The zero value is usable.
type Options struct {
	Watch      *watchdog.Loop // watches the sweeps; nil: not watched
	Slow       time.Duration  // between readings of one endpoint; 0 means 1 s
	Fast       time.Duration  // the same while Demand is true; 0 means 200 ms, at most Slow
	Timeout    time.Duration  // of one reading, from dial to the end of the page; 0 means 2 s
	MaxBackoff time.Duration  // maximum wait after failures; 0 means 10 s
	MaxPage    int64          // maximum page size in bytes; 0 means 8 MiB

	// Pace overrides Fast if it returns more than 0. It is called on every sweep, so the pace may
	// change, and must return immediately.
	Pace func() time.Duration
	// Demand reports whether decisions depend on fresh gauges of an endpoint. It is called up to
	// once per Fast and endpoint, must return immediately and must not call the Poller. nil means
	// NearSaturation.
	Demand func(*endpoint.Endpoint) bool
	// OnRestart is called, between SetGauges and OnPage, if a page shows a new process; may be nil.
	OnRestart func(*endpoint.Endpoint)
	// OnPage is called with every page, after SetGauges, on the reading's goroutine; may be nil.
	OnPage func(*endpoint.Endpoint, Page)
	// OnRead is called with every result, after OnPage, and then decides whether the endpoint is
	// down. nil: an endpoint that refuses connections twice is down.
	OnRead func(*endpoint.Endpoint, Reading)

	// Dialects returns how pages are read. It is called before every reading and must return
	// immediately. nil means the built-in names.
	Dialects func() *Dialects
	// Scheme and Path are the defaults for endpoints that specify none; "" means http and /metrics,
	// or /prometheus/metrics if /metrics is JSON, as in TensorRT-LLM.
	Scheme, Path string
	TLS          *tls.Config // for https; nil: certificates are verified, no client certificate

	Transport  http.RoundTripper     // nil means one that keeps a connection and asks for no compression
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means the monotonic clock
	Random     func() float64        // in [0, 1), for jitter; nil means math/rand. Safe for concurrent use
}

// Reading is the result of one reading.
type Reading struct {
	At       time.Time
	Answered bool // with a page or any other HTTP response
	Refused  bool // the endpoint's own address refused at least two consecutive connections
	Page     *Page
	Rest     time.Duration // additional time until an answered endpoint is read again
}

// NearSaturation is the default demand: the queue is not empty or the cache is nearly full, so a
// fresh sample may change a decision.
func NearSaturation(ep *endpoint.Endpoint) bool {
	g := ep.Gauges()
	return g.Waiting > 0 || g.KVUse >= 0.7
}

func (o *Options) complete() {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&o.Slow, defaultSlow)
	set(&o.Fast, defaultFast)
	o.Fast = min(o.Fast, o.Slow)
	set(&o.Timeout, defaultTimeout)
	set(&o.MaxBackoff, defaultMaxBackoff)
	o.MaxBackoff = max(o.MaxBackoff, o.Slow)
	if o.MaxPage <= 0 {
		o.MaxPage = defaultMaxPage
	}
	if o.Demand == nil {
		o.Demand = NearSaturation
	}
	o.Scheme, o.Path = cmp.Or(o.Scheme, "http"), "/"+strings.TrimPrefix(cmp.Or(o.Path, defaultPath), "/")
	if o.Dialects == nil {
		o.Dialects = func() *Dialects { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
}

// mostFast is the maximum number of readings per second of all endpoints near saturation. Beyond
// it, these are read less often, but at least as often as others.
const mostFast = 100

// mostSlow is the maximum number of regular readings per second of all endpoints. Pages of larger pools are
// read less often: those of 10,000 endpoints every four seconds. Decisions use gauges of up to five seconds.
const mostSlow = 2500

// slowOf returns the interval between regular readings of each of that many endpoints.
func (o *Options) slowOf(endpoints int) time.Duration {
	return max(o.Slow, time.Duration(endpoints)*time.Second/mostSlow)
}

// fastOf returns the interval between readings of each of that many endpoints near saturation. An
// explicit Pace is kept.
func (o *Options) fastOf(endpoints int) time.Duration {
	pace := o.fast()
	if o.Pace != nil && o.Pace() > 0 {
		return pace
	}
	return min(max(pace, time.Duration(endpoints)*time.Second/mostFast), o.Slow)
}

func (o *Options) fast() time.Duration {
	if o.Pace == nil {
		return o.Fast
	}
	if d := o.Pace(); d > 0 {
		return min(d, o.Slow)
	}
	return o.Fast
}

// scanners pools buffers: one per reading in progress rather than one per endpoint.
type scanners struct{ pool sync.Pool }

func (s *scanners) get() *Scanner {
	if sc, ok := s.pool.Get().(*Scanner); ok {
		return sc
	}
	return NewScanner()
}

func (s *scanners) put(sc *Scanner) { s.pool.Put(sc) }
