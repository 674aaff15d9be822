package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/pd/handover"
)

// Options configure a Server. Engine is required.
type Options struct {
	Engine    string    // base URL of the decode engine, such as http://127.0.0.1:8200
	Connector Connector // how KV caches travel
	// PrefillTLS has prefill legs use https.
	PrefillTLS bool
	// Targets decides which addresses may be called; nil allows all.
	Targets Targets
	// HandOver says what is done about hand-over members in clients' bodies.
	HandOver handover.Policy
	// BootstrapPort is where SGLang's prefill engines meet their peers: 8998.
	BootstrapPort int
	// CacheHitThreshold has shared-storage legs carry cache_hit_threshold, for
	// engines that know it.
	CacheHitThreshold bool
	// Lease is how long a prefill engine keeps blocks that nobody has read (30 s, as
	// vLLM's NIXL connector). A hand-over is used for two thirds of it.
	Lease time.Duration
	// Prefill bounds one prefill leg (120 s), Head the time to the first content of
	// a decode answer (120 s).
	Prefill, Head time.Duration
	// NoFallback fails a request that no prefill engine could serve, instead of
	// having the decode engine compute the prompt.
	NoFallback bool
	// MaxBody bounds request bodies (64 MiB); JSON answers that are changed are
	// bounded by it too.
	MaxBody int64

	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Transport carries all legs; nil makes one that keeps connections.
	Transport http.RoundTripper
	// Now is the clock by which hand-overs age; nil is time.Now.
	Now func() time.Time
	// Random returns random bits for rooms; nil uses crypto/rand.
	Random func() uint64
}

var errEngine = errors.New("sidecar: the engine must be a URL such as http://127.0.0.1:8200")

func (o *Options) complete() (*url.URL, error) {
	engine, err := url.Parse(o.Engine)
	if err != nil || engine.Host == "" || engine.Scheme != "http" && engine.Scheme != "https" {
		return nil, fmt.Errorf("%w, not %q", errEngine, o.Engine)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second, DisableCompression: true, ForceAttemptHTTP2: false,
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = random
	}
	def(&o.BootstrapPort, 8998)
	def(&o.Lease, 30*time.Second)
	def(&o.Prefill, 120*time.Second)
	def(&o.Head, 120*time.Second)
	def(&o.MaxBody, 64<<20)
	return engine, nil
}

func def[T int | int64 | time.Duration](at *T, value T) {
	if *at <= 0 {
		*at = value
	}
}
