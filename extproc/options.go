package extproc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// DefaultMaxBody is the request body limit when Options.MaxBody is zero.
const DefaultMaxBody = 64 << 20

// Defaults of Options.
const (
	DefaultBodyTimeout    = time.Minute
	DefaultMessageTimeout = 5 * time.Second
)

// defaultEarlyHold is the limit of a STREAMED body that waits for the decision when Envoy sends it
// before the headers are answered. Envoy stops reading from the client when its own buffer is full
// (default 1 MiB), so waiting for more than half of that could block forever. In this mode a body
// that ends in trailers waits for Envoy's message timeout, because Envoy sends trailers only after
// the chunks were answered.
const defaultEarlyHold = 256 << 10

// Errors of New and Open.
var (
	errNoChooser = errors.New("extproc: options: a chooser is required")
	errNoParse   = errors.New("extproc: options: a parse function is required")
	errAnswers   = errors.New("extproc: options: whose model name answers carry")
	errGateway   = errors.New("extproc: options: the gateway is not known")
)

// Options configures a Processor and a Server. Chooser and Parse are required.
type Options struct {
	// Chooser decides. It is called once per request, on the stream's goroutine, with the stream's
	// context.
	Chooser request.Chooser

	// Parse fills a request from its Path, Headers and whole Body in one scan: request.Parse. A
	// *request.Error rejects the request.
	Parse func(*request.Request) error

	// ParsePrefix fills a request from the first bytes of its body (BUFFERED_PARTIAL, STREAMED) or
	// from none: request.ParsePrefix. If nil, such requests have only path and headers.
	ParsePrefix func(*request.Request)

	// Forms reports whether uploads of known length are read for their model, because engines serve
	// different ones. nil: they are not.
	Forms func() bool

	// Answer responds to requests without a body in place of an engine, for example to model lists.
	// With ok false the request is placed. nil: never.
	Answer func(method, path string) (status int, body []byte, ok bool)

	// MaxBody is the maximum request body in bytes. Larger ones are rejected with 413. Zero means
	// DefaultMaxBody.
	MaxBody int

	// Budget is the process's memory; nil means no limit. Bodies are charged to it until they are
	// placed.
	Budget *budget.Budget

	// BodyTimeout bounds the wait for the rest of a buffered body. Zero means DefaultBodyTimeout.
	BodyTimeout time.Duration

	// MessageTimeout is the proxy's message_timeout. It bounds the wait for capacity, except in
	// full duplex, which has no timeout. Zero means DefaultMessageTimeout.
	MessageTimeout time.Duration

	// MaxMessageTimeout is the proxy's max_message_timeout. If it is longer, it is requested when a
	// request begins to wait.
	MaxMessageTimeout time.Duration

	// PassControl forwards engine control calls (request.Controls) instead of rejecting them.
	PassControl bool

	// KVTransfer is the policy for body members by which proxies pass caches between engines. The
	// zero value rejects requests with such members.
	KVTransfer kvtransfer.Policy

	// Assume is the body modes of a proxy that does not announce them; nil means full duplex in
	// both directions, as in conformant gateways.
	Assume *Modes

	// AllowModeOverride means that the proxy's filter has allow_mode_override, so that response
	// bodies can be enabled per request.
	AllowModeOverride bool

	// Trust returns whose intent headers count; nil, or a nil result, means everyone's. It is
	// called for each request.
	Trust func() *request.Trust

	// AnswerModel selects the model name in responses to rewritten requests; "" means
	// AnswerModelAuto.
	AnswerModel AnswerModel

	// Rewrites reports whether models are rewritten by the name in the body, so that the body must
	// be requested from the proxy. nil means no.
	Rewrites func() bool

	// Gateway names the proxy, which determines the destination format; "" means GatewayAuto.
	Gateway Gateway

	// Destinations overrides the number of addresses per reply; 0 leaves it to Gateway.
	Destinations int

	// FallbackMetadata also sends the second endpoint in the older metadata
	// key x-gateway-destination-endpoint-fallback.
	FallbackMetadata bool

	// IgnoreSubset chooses among all endpoints, regardless of the proxy's subset.
	IgnoreSubset bool

	// ReportServed adds the serving endpoint to each response, in the header that gateway
	// conformance tests read.
	ReportServed bool

	// Tracer traces requests; nil: they are not traced.
	Tracer *tracing.Tracer

	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer

	// Log is the package's logger; nil discards.
	Log *slog.Logger

	// Now is the clock; nil means the monotonic clock.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Chooser == nil {
		return o, errNoChooser
	}
	if o.Parse == nil {
		return o, errNoParse
	}
	facts, known := FactsOf(o.Gateway)
	if !known {
		return o, fmt.Errorf("%w: %q", errGateway, o.Gateway)
	}
	if o.Destinations <= 0 {
		o.Destinations = facts.Destinations
	}
	if o.AnswerModel = cmp.Or(o.AnswerModel, AnswerModelAuto); !slices.Contains(AnswerModels(), string(o.AnswerModel)) {
		return o, fmt.Errorf("%w: %q", errAnswers, o.AnswerModel)
	}
	if o.Trust == nil {
		o.Trust = func() *request.Trust { return nil }
	}
	if o.Rewrites == nil {
		o.Rewrites = func() bool { return false }
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if share := o.Budget.Share(budget.Bodies); share > 0 {
		o.MaxBody = int(min(int64(o.MaxBody), share/2))
	}
	if o.MessageTimeout <= 0 {
		o.MessageTimeout = DefaultMessageTimeout
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = DefaultBodyTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	return o, nil
}
