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
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
)

// Options configures a Server. Engine is required.
type Options struct {
	Engine    string    // base URL of the decode engine, such as http://127.0.0.1:8200
	Connector Connector // KV transfer protocol
	// PrefillTLS enables https for prefill legs.
	PrefillTLS bool
	// EncodeTLS enables https for encode legs.
	EncodeTLS bool
	// Encoder is the transfer of encoded images and audio, if the picker names encoders.
	Encoder Encoder
	// Write configures the write mode of MoRI-IO, a variant of NIXL; nil: engines pull.
	Write *Write
	// Sample starts with a random target of the picker's list.
	Sample bool
	// P2PPull makes NIXL prefill legs and whole requests fetch blocks from the engine named by the
	// picker. P2PPort is the port of the engines' peer-to-peer tiers, 7777, plus the rank. BasePort
	// and Ranks map ports to ranks.
	P2PPull         bool
	P2PPort         int
	BasePort, Ranks int
	// Targets decides which addresses may be used; nil allows all.
	Targets Targets
	// KVTransfer is the policy for KV transfer fields in client bodies.
	KVTransfer kvtransfer.Policy
	// WebSockets forwards WebSockets to the engine. Their content is not inspected, so the engine
	// must not accept KV transfer fields there.
	WebSockets bool
	// BootstrapPort is the port of the bootstrap servers of SGLang and Mooncake: 8998.
	BootstrapPort int
	// RoomHeaders names SGLang's room in headers and leaves bodies unchanged. Engines need
	// SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES=1.
	RoomHeaders bool
	// CacheHitThreshold adds cache_hit_threshold to shared-storage legs, for engines that support
	// it. If clients may set it (KVTransfer.Allow), the decode engine is tried first.
	CacheHitThreshold bool
	// Lease is how long a prefill engine keeps unread blocks (30 s, as in vLLM's NIXL connector). A
	// KV transfer is used within the first two thirds.
	Lease time.Duration
	// Prefill bounds one prefill leg (120 s). Head is the interval at which an engine that has not
	// begun a decode response is checked for a hang (120 s).
	Prefill, Head time.Duration
	// DeathWait is how long an engine that failed is observed before its request reaches another one
	// (1 s). ReturnWait is how long a request that was in flight when its engine died waits for the
	// engine to restart (5 s), SuspectWait the same if the request may be the cause (3 min).
	DeathWait, ReturnWait, SuspectWait time.Duration
	// NoFallback fails a request after all prefill engines failed, instead of computing the prompt
	// at the decode engine.
	NoFallback bool
	// Continue continues streams whose engine has died at the engines that the picker named.
	// ContinueTLS enables https for these requests.
	Continue, ContinueTLS bool
	// MaxBody bounds request bodies, and JSON responses that are modified (64 MiB).
	MaxBody int64
	// Budget is the memory budget of bodies, which are kept until their requests end; nil means no
	// limit.
	Budget *memory.Budget

	Log        *slog.Logger
	Registerer prometheus.Registerer
	// Tracer traces requests and their legs; nil: they are not traced.
	Tracer *tracing.Tracer
	// Transport is the transport of all legs; nil creates one with persistent connections.
	Transport http.RoundTripper
	// Now is the clock for the age of KV transfers; nil is time.Now.
	Now func() time.Time
	// Random returns random bits for rooms; nil uses crypto/rand.
	Random func() uint64
	// UUID returns a new transfer name; nil creates random ones.
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
	if o.Continue && (o.Connector == SGLang || o.Connector == TRTLLM) {
		return nil, errConnector
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
	def(&o.DeathWait, time.Second)
	def(&o.ReturnWait, 5*time.Second)
	def(&o.SuspectWait, 3*time.Minute)
	def(&o.MaxBody, 64<<20)
	return engine, nil
}

// maxAnswerHead bounds the headers of engine responses. Gateways accept less.
const maxAnswerHead = 256 << 10

// NewTransport returns a transport for all legs that keeps up to idle idle connections per engine.
// It uses HTTP/1.1, like engines, and limits dials to five seconds regardless of the leg's timeout.
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
