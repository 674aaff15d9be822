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

// defaultEarlyHold bounds how much of a STREAMED body is held for the decision
// when Envoy sends it before the headers are answered. Envoy stops reading
// from the client when its own buffer is full, 1 MiB by default, so waiting
// for more than half of that could wait for ever. (A body that ends in trailers
// does wait for Envoy's message timeout in this mode: Envoy sends them only
// after the chunks were answered.)
const defaultEarlyHold = 256 << 10

// Errors of New and Open.
var (
	errNoChooser = errors.New("extproc: options: a chooser is required")
	errNoParse   = errors.New("extproc: options: a parse function is required")
	errAnswers   = errors.New("extproc: options: whose model name answers carry")
	errGateway   = errors.New("extproc: options: the gateway is not known")
)

// Options build a Processor and a Server. Chooser and Parse are required.
type Options struct {
	// Chooser decides. It is called once per request, on the stream's
	// goroutine, with the stream's context.
	Chooser request.Chooser

	// Parse fills a request from its Path, Headers and whole Body, in one
	// scan: request.Parse. A *request.Error refuses the request.
	Parse func(*request.Request) error

	// ParsePrefix fills what can be known without the whole body, of which
	// there are the first bytes (BUFFERED_PARTIAL, STREAMED) or none:
	// request.ParsePrefix. Nil leaves such requests with path and headers.
	ParsePrefix func(*request.Request)

	// Forms reports whether uploads of a known length are read for the model that they
	// name, because engines serve different ones. Nil: they are not.
	Forms func() bool

	// Answer answers requests without a body in the engines' place, such as the
	// list of models; false leaves the request to be placed. Nil answers none.
	Answer func(method, path string) (status int, body []byte, ok bool)

	// MaxBody is the largest request body in bytes; more is refused with 413.
	// Zero means DefaultMaxBody.
	MaxBody int

	// Budget is the process's memory; nil means without limit. Bodies take of it
	// until they are placed.
	Budget *budget.Budget

	// BodyTimeout bounds the wait for the rest of a body that is held. Zero means
	// DefaultBodyTimeout.
	BodyTimeout time.Duration

	// MessageTimeout is the proxy's message_timeout, which bounds how long a request
	// may wait for capacity, but in full duplex, where it does not run. Zero means
	// DefaultMessageTimeout.
	MessageTimeout time.Duration

	// MaxMessageTimeout is the proxy's max_message_timeout: when it is longer, the
	// proxy is asked for that much when a request begins to wait.
	MaxMessageTimeout time.Duration

	// PassControl passes on calls that control an engine (request.Controls) instead of
	// refusing them.
	PassControl bool

	// Handover is what happens to members of bodies by which proxies hand caches
	// from engine to engine. The zero value refuses requests that have some.
	Handover kvtransfer.Policy

	// Assume is what body modes to expect from a proxy that does not announce
	// them; nil means full duplex both ways, as conformant gateways configure.
	Assume *Modes

	// AllowModeOverride says that the proxy's filter has allow_mode_override,
	// so that response bodies can be asked for, or left out, one by one.
	AllowModeOverride bool

	// Trust says whose intent headers count; nil, or nil from it, means everybody's.
	// It is asked for each request.
	Trust func() *request.Trust

	// AnswerModel is whose name of the model answers carry when the decision
	// changed it; "" means AnswerModelAuto.
	AnswerModel AnswerModel

	// Rewrites tells whether model names are rewritten by what bodies say, so
	// that a proxy that keeps bodies back is asked for them. Nil means no.
	Rewrites func() bool

	// Gateway names the proxy, for what it takes as a destination; "" means
	// GatewayAuto.
	Gateway Gateway

	// Destinations is how many addresses to name in one answer, whatever the
	// gateway takes; 0 leaves it to Gateway.
	Destinations int

	// FallbackMetadata also sends the second endpoint in the older metadata
	// key x-gateway-destination-endpoint-fallback.
	FallbackMetadata bool

	// IgnoreSubset chooses among all endpoints, whatever subset the proxy names.
	IgnoreSubset bool

	// ReportServed names on each answer the endpoint that served it, in the
	// header that conformance tests of gateways read.
	ReportServed bool

	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer

	// Log takes what the package has to say; nil discards it.
	Log *slog.Logger

	// Now is the clock; nil means steady.Now.
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
