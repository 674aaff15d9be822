package envoyconf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// Kind is a kind of configuration.
type Kind string

// Values of Kind.
const (
	Resilient Kind = "resilient"
	Gateway   Kind = "gateway"
	Plain     Kind = "plain" // no picker: round robin, for comparison
)

// Params configure one Envoy. ExtProc and Endpoints are required; other zero values get the default
// in their comment.
type Params struct {
	Kind Kind // Resilient

	Listen string // host:port for clients; 127.0.0.1:8080
	Admin  string // host:port of the admin interface; 127.0.0.1:9901

	ExtProc   []string // host:port of every picker replica
	Endpoints []string // ip:port of every engine; Envoy resolves host names

	// Gateways are the gateways of remote clusters, ip:port, to which pickers may send requests.
	// GatewaySNI enables TLS to these gateways; GatewayCA verifies their certificates, "" accepts
	// any certificate.
	Gateways              []string
	GatewaySNI, GatewayCA string

	Plaintext bool   // no TLS to the pickers
	CAFile    string // verifies the pickers' certificate; "" accepts any
	SAN       string // required name in the certificate; only with CAFile
	CertFile  string // client certificate for the pickers, with KeyFile; "" for none
	KeyFile   string

	// BodyLimit is the largest request body that Envoy buffers, in bytes: 64 MiB.
	BodyLimit int
	// MessageTimeout is how long Envoy waits for a picker's response, including queueing: 5 s.
	MessageTimeout time.Duration
	// NetworkTimeout is the time limit for connections to engines and pickers, for health checks of
	// pickers and for pings. Zero: 1 s, 0.5 s to connect to pickers, and 2 s for pings.
	NetworkTimeout time.Duration
	// Retries is the number of retries over the list of destinations: 3; negative for none.
	Retries int
	// KeepAlive is how long Envoy keeps an idle connection to an engine: 4 s, because engines close
	// theirs after 5 s.
	KeepAlive time.Duration

	// RequestBody and ResponseBody override the kind's body modes, with Envoy's names (NONE,
	// STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED); "" keeps the kind's.
	RequestBody, ResponseBody string
	// EarlyBody sends STREAMED bodies before the headers are answered.
	EarlyBody bool
	// KeepRoutingHeaders leaves the removal of forbidden client headers to the pickers, like other
	// gateways.
	KeepRoutingHeaders bool
	// EngineHTTP2 uses HTTP/2 instead of HTTP/1.1 to the engines, as gRPC servers require.
	EngineHTTP2 bool
	// StripIntent also removes clients' intent headers: priority, fairness ID, latency targets,
	// another model.
	StripIntent bool
	// FailClosed answers 500 where a resilient Envoy would choose an endpoint itself: without a
	// live picker, and for requests that wait at a picker that dies.
	FailClosed bool
	// Observe lets the pickers observe requests without deciding.
	Observe bool

	// ResponseHeaders are headers that Envoy adds to each response, NAME=VALUE. Values may contain
	// Envoy's command operators, such as %UPSTREAM_REMOTE_ADDRESS%.
	ResponseHeaders []string
	// SubsetHeader is a request header with the endpoints that may answer, ip:port separated by
	// commas; "" for none. Envoy sends its value to the pickers as the subset hint.
	SubsetHeader string
	// OTLP is the host:port of an OpenTelemetry collector (OTLP over gRPC) that Envoy exports spans to;
	// "" for none.
	OTLP string
}

// ErrParams is wrapped by every error about Params.
var ErrParams = errors.New("envoyconf: parameters")

// view is the template's input.
type view struct {
	Params
	ListenAt, AdminAt           address
	ExtProcAt, EndpointsAt      []address
	GatewaysAt                  []address
	ExtProcType, EndpointsType  string
	MessageSeconds, KeepSeconds string
	Network                     networkSeconds
	RequestTrailers             string
	ResponseTrailers            string
	FailOpen, ModeOverride      bool
	Strip                       []string // request headers that clients may not send
	GatewayHeaders              []string // request headers for gateways of other clusters only
	DestinationsKey, RetriesKey string
	WaitedKey, MovesKey         string
	QuietKey                    string
	DestinationHeader           string
	Later                       []string // names of the filters that ask other replicas when one has failed
	LastFilter                  string
	RetryReset                  string // when streams to a picker that breaks are sent again
	Destinations                int
	AddHeaders                  []header
	OTLPAt                      []address
	OTLPType                    string
}

// networkSeconds are time limits for the template.
type networkSeconds struct{ Engine, Picker, Health, Ping string }

// header is a header for the template.
type header struct{ Name, Value string }

// address is a socket address for the template.
type address struct {
	Host string
	Port int
}

func (p Params) normalize() (view, error) {
	v := view{Params: p}
	if v.Kind == "" {
		v.Kind = Resilient
	}
	if v.Kind != Resilient && v.Kind != Gateway && v.Kind != Plain {
		return v, fmt.Errorf("%w: --kind %q: use %s, %s, %s or bootstrap", ErrParams, v.Kind, Resilient, Gateway, Plain)
	}
	v.defaults()
	if err := v.modes(); err != nil {
		return v, err
	}
	if v.CAFile != "" && v.Plaintext {
		return v, fmt.Errorf("%w: CA file and plaintext cannot be used together", ErrParams)
	}
	if (v.CertFile == "") != (v.KeyFile == "") || v.CertFile != "" && v.Plaintext {
		return v, fmt.Errorf("%w: a client certificate requires its key, and TLS", ErrParams)
	}
	if v.GatewayCA != "" && v.GatewaySNI == "" {
		return v, fmt.Errorf("%w: a CA file for gateways requires their server name", ErrParams)
	}
	if err := v.headers(); err != nil {
		return v, err
	}
	return v, v.addresses()
}

// headers parses the names and values of headers.
func (v *view) headers() error {
	for _, h := range v.ResponseHeaders {
		name, value, ok := strings.Cut(h, "=")
		if !ok || !isHeaderName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%w: --response-header %q: want NAME=VALUE", ErrParams, h)
		}
		v.AddHeaders = append(v.AddHeaders, header{name, value})
	}
	switch {
	case v.SubsetHeader == "":
	case !isHeaderName(v.SubsetHeader):
		return fmt.Errorf("%w: --subset-header %q: want the name of a header", ErrParams, v.SubsetHeader)
	case v.Kind == Plain:
		return fmt.Errorf("%w: --subset-header requires a picker", ErrParams)
	}
	return nil
}

// isHeaderName reports whether s is a name of a header field (RFC 9110, token).
func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func (v *view) defaults() {
	if v.Listen == "" {
		v.Listen = "127.0.0.1:8080"
	}
	if v.Admin == "" {
		v.Admin = "127.0.0.1:9901"
	}
	if v.BodyLimit <= 0 {
		v.BodyLimit = 64 << 20
	}
	if v.MessageTimeout <= 0 {
		v.MessageTimeout = 5 * time.Second
	}
	if v.Retries == 0 {
		v.Retries = 3
	}
	if v.KeepAlive <= 0 {
		v.KeepAlive = 4 * time.Second
	}
	if v.Kind != Plain && !v.KeepRoutingHeaders {
		// The hop token of another cluster's picker arrives like a client header. The pickers
		// verify and remove it.
		v.Strip = slices.DeleteFunc(request.RoutingHeaders(), func(name string) bool { return name == request.HeaderHop })
	}
	if v.Kind != Plain && v.StripIntent {
		v.Strip = append(v.Strip, request.IntentHeaders()...)
	}
	v.GatewayHeaders = []string{request.HeaderHop, request.HeaderClusters}
	v.DestinationsKey, v.RetriesKey, v.WaitedKey = request.MetadataDestinations, request.MetadataRetries, request.MetadataWaited
	v.MovesKey, v.QuietKey = request.MetadataMoves, request.MetadataQuiet
	v.DestinationHeader = request.HeaderDestination
	v.Destinations = min(max(v.Retries, 0), 2) + 1
	v.Network = networkSeconds{Engine: "1s", Picker: "0.5s", Health: "1s", Ping: "2s"}
	if v.NetworkTimeout > 0 {
		s := seconds(v.NetworkTimeout)
		v.Network = networkSeconds{s, s, s, s}
	}
	v.MessageSeconds, v.KeepSeconds = seconds(v.MessageTimeout), seconds(v.KeepAlive)
}

// LastFilter is the statistics prefix of the last filter that asks a picker, if the request body is
// not full duplex. Its failure_mode_allowed counts the requests that Envoy routed itself.
const LastFilter = "picker_third"

const fullDuplex = "FULL_DUPLEX_STREAMED"

// modes sets the body and trailer modes and dependent values.
func (v *view) modes() error {
	req, resp := "BUFFERED", "NONE"
	if v.Kind == Gateway {
		req, resp = fullDuplex, fullDuplex
	}
	if v.RequestBody == "" {
		v.RequestBody = req
	}
	if v.ResponseBody == "" {
		v.ResponseBody = resp
	}
	for _, m := range []string{v.RequestBody, v.ResponseBody} {
		switch m {
		case "NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", fullDuplex:
		default:
			return fmt.Errorf("%w: unknown body mode %q", ErrParams, m)
		}
	}
	duplex := v.RequestBody == fullDuplex || v.ResponseBody == fullDuplex
	v.FailOpen = v.Kind == Resilient && !v.FailClosed
	v.ModeOverride = v.Kind == Resilient && !duplex && !v.EarlyBody && !v.Observe
	// A stream is sent again if the picker has answered nothing. Before an answer, Envoy sends only
	// headers, except in the modes that send bodies early: Envoy 1.36 may leave a hole in those.
	if v.RetryReset = "reset"; v.RequestBody == fullDuplex || v.EarlyBody {
		v.RetryReset = "reset-before-request"
	}
	// In full duplex Envoy keeps no body, an observing picker sets no destination, and without
	// the removal of routing headers clients could make Envoy skip the later filters.
	if v.RequestBody != fullDuplex && !v.Observe && !v.KeepRoutingHeaders {
		v.Later, v.LastFilter = []string{"picker_second", LastFilter}, LastFilter
	}
	v.RequestTrailers, v.ResponseTrailers = "SKIP", "SEND"
	if duplex {
		v.RequestTrailers = "SEND"
	}
	return nil
}

func (v *view) addresses() (err error) {
	if v.ListenAt, err = parseAddress("listen", v.Listen); err != nil {
		return err
	}
	if v.AdminAt, err = parseAddress("admin", v.Admin); err != nil {
		return err
	}
	if v.OTLP != "" {
		if v.OTLPAt, v.OTLPType, err = parseList("otlp", []string{v.OTLP}); err != nil {
			return err
		}
	}
	if v.Kind != Plain {
		if v.ExtProcAt, v.ExtProcType, err = parseList("ext_proc", v.ExtProc); err != nil {
			return err
		}
	}
	if v.EndpointsAt, v.EndpointsType, err = parseList("endpoints", v.Endpoints); err != nil || len(v.Gateways) == 0 {
		return err
	}
	var kind string
	if v.GatewaysAt, kind, err = parseList("gateways", v.Gateways); err == nil && (kind != "STATIC" || v.Kind == Plain) {
		return fmt.Errorf("%w: gateways: ip:port, and a picker that chooses them, are required", ErrParams)
	}
	return err
}

// parseList also returns the cluster type: host names need Envoy's resolver.
func parseList(what string, list []string) (out []address, kind string, err error) {
	if len(list) == 0 {
		return nil, "", fmt.Errorf("%w: at least one address is required (--%s)", ErrParams, strings.TrimSuffix(strings.ReplaceAll(what, "_", "-"), "s"))
	}
	kind = "STATIC"
	for _, s := range list {
		a, err := parseAddress(what, s)
		if err != nil {
			return nil, "", err
		}
		if a.Port == 0 {
			return nil, "", fmt.Errorf("%w: %s: %q has no port", ErrParams, what, s)
		}
		if _, err := netip.ParseAddr(a.Host); err != nil {
			kind = "STRICT_DNS"
		}
		out = append(out, a)
	}
	return out, kind, nil
}

func parseAddress(what, s string) (address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, fmt.Errorf("%w: %s: %w", ErrParams, what, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, fmt.Errorf("%w: %s: %q: port is not a number below 65536", ErrParams, what, s)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return address{Host: host, Port: int(n)}, nil
}

// seconds formats a duration for Envoy.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
