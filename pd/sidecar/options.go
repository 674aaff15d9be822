package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// Options configure a Server. Engine is required.
type Options struct {
	Engine    string    // base URL of the decode engine, such as http://127.0.0.1:8200
	Connector Connector // how KV caches travel
	// PrefillTLS has prefill legs use https.
	PrefillTLS bool
	// EncodeTLS has encode legs use https.
	EncodeTLS bool
	// Encoder says how encoded images and sound travel, where the picker names
	// encoders.
	Encoder Encoder
	// Write is the write mode of NIXL's sister MoRI-IO; nil: engines pull.
	Write *Write
	// Sample begins at a random one of the targets that the picker names.
	Sample bool
	// P2PPull has prefill legs of NIXL, and requests that stay whole, fetch what the
	// picker says that another engine holds. P2PPort is the port of engines'
	// peer-to-peer tiers, 7777, + the rank; BasePort and Ranks tell ranks by ports.
	P2PPull         bool
	P2PPort         int
	BasePort, Ranks int
	// Targets decides which addresses may be called; nil allows all.
	Targets Targets
	// KVTransfer says what is done about hand-over members in clients' bodies.
	KVTransfer kvtransfer.Policy
	// WebSockets are passed on to the engine, which is to take no hand-over members from
	// them: nobody looks into them.
	WebSockets bool
	// BootstrapPort is where prefill engines of SGLang and Mooncake meet their peers: 8998.
	BootstrapPort int
	// RoomHeaders has SGLang's legs name their room in headers, and leaves bodies as they
	// are: engines need SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES=1.
	RoomHeaders bool
	// CacheHitThreshold has shared-storage legs carry cache_hit_threshold, for
	// engines that know it. Where clients may send it (HandOver.Allow), the decode engine
	// is asked first.
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
	// Budget is of the memory of bodies, which are kept until their requests end; nil
	// is without limit.
	Budget *memory.Budget

	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Transport carries all legs; nil makes one that keeps connections.
	Transport http.RoundTripper
	// Now is the clock by which hand-overs age; nil is time.Now.
	Now func() time.Time
	// Random returns random bits for rooms; nil uses crypto/rand.
	Random func() uint64
	// UUID returns a new name for a transfer; nil makes random ones.
	UUID func() string
}

var errEngine = errors.New("sidecar: the engine must be a URL such as http://127.0.0.1:8200")

var errLocal = errors.New("sidecar: the write mode needs the address of the decode engine's pod")

// uuid returns a random UUID of version 4.
func uuid(a, b uint64) string {
	a, b = a&^0xf000|0x4000, b&^(3<<62)|2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}

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
		o.Transport = NewTransport(1024)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = random
	}
	if o.UUID == nil {
		random := o.Random
		o.UUID = func() string { return uuid(random(), random()) }
	}
	if o.Write != nil {
		if o.Write.Local == "" {
			return nil, errLocal
		}
		o.Write.complete()
	}
	def(&o.BootstrapPort, 8998)
	def(&o.P2PPort, 7777)
	def(&o.Lease, 30*time.Second)
	def(&o.Prefill, 120*time.Second)
	def(&o.Head, 120*time.Second)
	def(&o.MaxBody, 64<<20)
	return engine, nil
}

// maxAnswerHead bounds the heads of engines' answers. Gateways take less.
const maxAnswerHead = 256 << 10

// NewTransport returns a transport for all legs that keeps so many idle connections to each
// engine. It speaks HTTP/1.1, as engines do, and gives up on hosts that take no connection
// after five seconds, whatever the leg's time.
func NewTransport(idle int) *http.Transport {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return bodies.Gathering(d.DialContext(ctx, network, address))
		},
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: idle, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
		MaxResponseHeaderBytes: maxAnswerHead,
	}
}

func def[T int | int64 | time.Duration](at *T, value T) {
	if *at <= 0 {
		*at = value
	}
}
