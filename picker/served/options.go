package served

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/watchdog"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Defaults and limits.
const (
	defaultEvery   = 30 * time.Second
	defaultTimeout = time.Second
	pause          = 250 * time.Millisecond // minimum interval of reads at one engine
	firstAgain     = time.Second            // first delay before retrying a failed read; doubled each time
	maxDoublings   = 10
	maxConfirmed   = 1024 // confirmed names that are remembered
	atOnce         = 16   // engines asked concurrently
)

// Options configure a Reader. Pool is required.
type Options struct {
	Pool *endpoint.Pool

	Every   time.Duration // interval of reads per engine; 0 means 30 s
	Timeout time.Duration // for one read, and for Confirm; 0 means 1 s
	Scheme  string        // for engine addresses; "" means http
	Client  *http.Client  // nil creates one without keep-alive

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Watch      *watchdog.Loop        // of the loop; nil: not watched
	Now        func() time.Time      // nil means monotime.Now
}

var errNoPool = errors.New("served: Options.Pool is required")

// NewClient returns the default client of a Reader. It does not follow redirects.
func NewClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (o *Options) complete() error {
	if o.Pool == nil {
		return errNoPool
	}
	if o.Every <= 0 {
		o.Every = defaultEvery
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Scheme == "" {
		o.Scheme = "http"
	}
	if o.Client == nil {
		o.Client = NewClient()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	return nil
}
