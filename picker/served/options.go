package served

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Defaults and bounds.
const (
	defaultEvery   = 30 * time.Second
	defaultTimeout = time.Second
	pause          = 250 * time.Millisecond // between the beginnings of two readings at one engine
	firstAgain     = time.Second            // after which a list that could not be read is asked for again; doubled each time
	maxDoublings   = 10
	doubtNames     = 1024 // names that were confirmed, remembered
	atOnce         = 16   // engines asked at the same time
)

// Options open a Reader. Pool is required.
type Options struct {
	Pool *endpoint.Pool

	Every   time.Duration // between readings of one engine's list; 0 means 30 s
	Timeout time.Duration // of one reading, and of Confirm; 0 means 1 s
	Scheme  string        // of engines' addresses; "" means http
	Client  *http.Client  // nil makes one that keeps no connection open

	Registerer prometheus.Registerer // nil leaves the metrics unregistered
	Log        *slog.Logger          // nil discards
	Now        func() time.Time      // nil means steady.Now
}

var errNoPool = errors.New("served: options: a pool is required")

// NewClient returns the client of a Reader that is given none. It follows no redirect.
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
