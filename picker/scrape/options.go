package scrape

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
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

// Options build a Poller. The zero value is usable.
type Options struct {
	Watch      *watchdog.Loop // of the sweeps; nil: not watched
	Slow       time.Duration  // between readings of one endpoint; 0 means 1 s
	Fast       time.Duration  // the same while Demand says so; 0 means 200 ms, at most Slow
	Timeout    time.Duration  // of one reading, from dial to the page's end; 0 means 2 s
	MaxBackoff time.Duration  // bound of the wait after failures; 0 means 10 s
	MaxPage    int64          // bytes of a page; 0 means 8 MiB

	// Pace, when it is set, stands above Fast: it is asked at every look at the
	// endpoints, so that the pace may change, and must return at once. 0 means
	// Fast.
	Pace func() time.Duration
	// Demand says whether decisions hang on how fresh an endpoint's gauges
	// are. It is asked up to once per Fast for each endpoint, must return at
	// once and must not call the Poller. nil means NearSaturation.
	Demand func(*endpoint.Endpoint) bool
	// OnRestart is told that the process behind a page is another one than that of the page
	// before, between SetGauges and OnPage; nil: nobody wants to know.
	OnRestart func(*endpoint.Endpoint)
	// OnPage is told every page that was read, after SetGauges, on the
	// reading's goroutine; nil: nobody wants to know.
	OnPage func(*endpoint.Endpoint, Page)
	// OnRead is told how every reading ended, after OnPage, and then judges whether
	// the endpoint is down; nil: one that refuses connections twice is.
	OnRead func(*endpoint.Endpoint, Reading)

	// Dialects say how endpoints' pages are read; it is asked before every
	// reading and must return at once. nil means the built-in names.
	Dialects func() *Dialects
	// Scheme and Path of pages whose endpoint does not say; "" means http and
	// /metrics, or /prometheus/metrics where /metrics is JSON, as TensorRT-LLM's is.
	Scheme, Path string
	TLS          *tls.Config // of https; nil: certificates are verified, none is shown

	Transport  http.RoundTripper     // nil means one with a kept connection per address and no compression
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means steady.Now
	Random     func() float64        // in [0, 1), for jitter; nil means math/rand. Safe for concurrent use
}

// Reading is how one reading ended.
type Reading struct {
	At       time.Time
	Answered bool // with a page, or with anything else over HTTP
	Refused  bool // the endpoint's own address has refused connections at least twice in a row
	Page     *Page
	Rest     time.Duration // beyond the usual, for which one that was answered is not read again
}

// NearSaturation is the demand of an endpoint whose queue is not empty or
// whose cache is nearly full: where a fresh sample may change a decision.
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

// fast is the time between readings where there is demand, as of now.
// mostFast is how many readings of endpoints near saturation begin in a second, of all
// endpoints together: beyond that their readings come less often, but not less than others'.
const mostFast = 100

// fastOf returns the time between readings of each of so many endpoints near saturation. A
// pace that something asks for is kept.
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

// newTransport keeps one connection to one endpoint. Engines are asked for plain
// text: compressing a page costs them more than sending it.
func newTransport(o *Options) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: o.Timeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    o.Timeout,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        2*o.MaxBackoff + time.Minute,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        1 << 10,
	}
	t.TLSClientConfig = o.TLS
	return t
}

// scanners lends buffers to readings: there are as many as readings under way,
// not as many as endpoints.
type scanners struct{ pool sync.Pool }

func (s *scanners) get() *Scanner {
	if sc, ok := s.pool.Get().(*Scanner); ok {
		return sc
	}
	return NewScanner()
}

func (s *scanners) put(sc *Scanner) { s.pool.Put(sc) }
