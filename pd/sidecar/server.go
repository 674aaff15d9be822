package sidecar

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	memory "github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/tracing"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/bodies"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/continuation"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/retry"
	"github.com/grapevine-epp/grapevine/pd/sidecar/internal/vitals"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Server is an http.Handler in front of one decode engine.
type Server struct {
	o          Options
	engine     *url.URL
	pass       *httputil.ReverseProxy
	m          *metrics
	boots      bootstraps
	budget     *retry.Budget
	holders    *memory.Holders // holders of request bodies
	health     health
	kept       sync.Once // for noteKept
	complaints complaints
	deaths     *deaths
	continuing *continuing            // nil: streams end with their engine
	salt       atomic.Pointer[string] // cache salt of requests to the decode engine while its cache is tainted
	verifying  verifications
	blocks     blockSizes
	answers    atomic.Int64 // that began or ended at the decode engine
}

// New returns a server. It starts no goroutine.
func New(o Options) (*Server, error) {
	engine, err := o.complete()
	if err != nil {
		return nil, err
	}
	signs := vitals.Reader{Transport: o.Transport}
	s := &Server{
		o: o, engine: engine, m: newMetrics(o.Registerer), budget: retry.New(), deaths: newDeaths(signs, o.DeathWait),
		holders: memory.NewHolders(o.Budget, memory.Bodies),
	}
	if o.Continue {
		s.continuing = newContinuing(o.Registerer, newDeaths(signs, o.DeathWait))
	}
	s.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(engine)
			r.Out.Host = r.In.Host
			clean(r.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error { unreported(r.Header); return nil },
		Transport:      onceMore{s}, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { s.unreachable(w, err) },
	}
	return s, nil
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// clean removes headers that only pickers and proxies may set.
func clean(h http.Header) {
	for _, name := range pickersHeaders {
		delete(h, name)
	}
	for _, name := range foreign {
		delete(h, name)
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.health.draining.Load() {
		w.Header().Set("Connection", "close") // the client must reconnect elsewhere
	}
	in := bodies.Begin(s.holders, w, r)
	defer in.End()
	w = in.W
	a := kvtransfer.FormatOf(r.URL.Path)
	if a == nil || r.Method != http.MethodPost {
		if !s.admit(w, r) || !s.inspect(in) {
			s.m.requests.WithLabelValues("refused").Inc()
			return
		}
		s.m.requests.WithLabelValues("passed").Inc()
		s.pass.ServeHTTP(w, r)
		return
	}
	x := &exchange{s: s, w: w, r: r, in: in, api: a, report: kvtransfer.Report{Target: -1}}
	defer x.endTurn()
	x.beginTrace()
	defer x.endTrace()
	if !x.read() {
		s.m.requests.WithLabelValues("refused").Inc()
		return
	}
	if s.o.Encoder != NoEncoder && a == kvtransfer.Chat {
		x.encode()
	}
	if len(x.targets) == 0 || !x.splits() {
		s.m.requests.WithLabelValues("whole").Inc()
		if s.o.Connector == Offloading || s.o.P2PPull {
			x.localWithSource()
			return
		}
		x.local()
		return
	}
	x.apart = true
	if r.Header.Get("X-Request-Id") == "" { // the logs of both engines can be joined
		r.Header.Set("X-Request-Id", s.o.UUID())
	}
	s.m.requests.WithLabelValues("split").Inc()
	s.budget.Asked()
	s.o.Connector.serve(x)
}

// admit rejects protocol upgrades that cannot be inspected, and ignores other upgrade requests, as
// HTTP permits.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	asked := r.Header.Values("Upgrade")
	webSocket := len(asked) == 1 && strings.EqualFold(strings.TrimSpace(asked[0]), "websocket")
	switch {
	case r.ProtoMajor != 1 && !(r.ProtoMajor == 2 && r.TLS != nil && r.TLS.NegotiatedProtocol == "h2"): // or a preface without HTTP/2
		writeError(w, http.StatusHTTPVersionNotSupported, "this port serves HTTP/1.1, and HTTP/2 over TLS only")
		return false
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		writeError(w, http.StatusMethodNotAllowed, "no tunnels are opened here")
		return false
	case len(asked) == 0 || webSocket && r.Method == http.MethodGet && s.o.WebSockets:
	case webSocket:
		writeError(w, http.StatusForbidden, "WebSockets are not supported: KV transfer fields inside them cannot be checked")
		return false
	default: // h2c, which would give the client an uninspected connection
		r.Header.Del("Upgrade")
	}
	return true
}

// exchange is one request that may be served in two parts.
type exchange struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	in       *bodies.Intake
	api      *kvtransfer.Format
	body     kvtransfer.Object // without members that only proxies may set
	targets  []string
	places   []int             // positions of targets in the request's list
	encoders []string          // allowed ones
	named    bool              // the request names prefill endpoints
	report   kvtransfer.Report // for the picker
	decodes  int               // legs to the decode engine
	left     int               // the last leg that has begun its answer or ended
	apart    bool              // served in two parts
	status   int               // status of the forwarded response, 0 before
	trace    *tracing.Span     // of the request; nil without a tracer

	promptKey   uint64 // hash of the body
	decodeDeath *death // the decode engine may have died of the last leg, before its first content
	confessed   bool   // it answered that leg with 5xx
	suspected   *death // the death that the prompt may have caused
	trials      int    // legs sent to a restarted engine
	condemned   bool   // must reach no other engine
	hasSalt     string // cache salt in the body
	alone       bool   // no other request has this salt
	idle        int    // legs that were sent again because their connection had been idle
	broken      bool   // a leg was sent again because its connection broke
	hasTurn     bool   // holds the turn of suspects

	stream *continuation.Stream // nil: not streamed, or continuations are off
	others []string             // allowed engines for its continuation
	inside bool                 // continuing.open contains the request
}

func (x *exchange) splits() bool {
	switch x.s.o.Connector {
	case SGLang:
		return x.api != kvtransfer.Messages && x.api != kvtransfer.Generate
	case TRTLLM:
		return (x.api == kvtransfer.Chat || x.api == kvtransfer.Completions) && x.api.Divisible(&x.body)
	}
	return x.api != kvtransfer.GenerateSGLang && x.api.Divisible(&x.body)
}

// read reads body and targets. If they cannot be served, it responds to the client and returns
// false.
func (x *exchange) read() bool {
	var ok bool
	if x.body, ok = x.s.readBody(x.in, x.r.Body); !ok {
		return false
	}
	x.promptKey = x.s.deaths.key(x.body.Text())
	x.targets = targets(x.r.Header, headerPrefiller)
	x.encoders = targets(x.r.Header, headerEncoders)
	x.named = len(x.targets) > 0
	if !x.allow() {
		x.fail(http.StatusForbidden, "the named prefill endpoint is not allowed")
		return false
	}
	x.track()
	if n := uint64(len(x.targets)); x.s.o.Sample && n > 1 {
		k := int(x.s.o.Random() % n)
		x.targets = append(slices.Clone(x.targets[k:]), x.targets[:k]...)
		x.places = append(slices.Clone(x.places[k:]), x.places[:k]...)
	}
	return true
}

// allow removes targets that are not allowed. It returns false if no prefill target is left and the
// decode engine must not, or cannot, compute the prompt.
func (x *exchange) allow() bool {
	x.places = make([]int, len(x.targets))
	for i := range x.places {
		x.places[i] = i
	}
	if len(x.encoders)+len(x.targets) == 0 || x.s.o.Targets == nil {
		return true
	}
	prefill, encode := x.s.o.Targets.Allowed(x.r.Header, x.targets, x.encoders)
	if len(prefill) == len(x.targets) && len(encode) == len(x.encoders) {
		return true
	}
	x.s.m.denied.Inc()
	x.s.complain(notAllowed, strings.Join(append(slices.Clone(x.encoders), x.targets...), ","), nil)
	x.places = x.places[:0]
	for i, k := 0, 0; i < len(x.targets) && k < len(prefill); i++ { // prefill is a part of targets, in order
		if x.targets[i] == prefill[k] {
			x.places, k = append(x.places, i), k+1
		}
	}
	x.targets, x.encoders = prefill, encode
	return !x.named || len(prefill) > 0 || !x.s.o.NoFallback && x.s.o.Connector != SGLang
}

// local serves the whole request at the decode engine.
func (x *exchange) local() {
	x.report.Target = -1
	x.finish(x.whole())
}

// whole sends the whole request to the decode engine, and again where a right answer is still possible:
//
//   - Transfers of other requests were found stale before the content. After a pause they are found one
//     after another, so the third leg has a cache salt of its own and cannot be misled.
//   - The engine had closed the connection while it was idle, and is not suspected to have died.
func (x *exchange) whole() *fault {
	x.salted()
	f := x.decode(leg{body: x.text(), cached: -1})
	for misled := 0; f != nil && x.r.Context().Err() == nil; {
		switch {
		case errors.Is(f.err, errStale):
			x.s.m.retries.WithLabelValues("stale_transfer").Inc()
			if misled++; misled > 1 {
				x.saltedAlone()
			} else {
				x.salted()
			}
		case f.stale && x.idle < maxIdle && x.trials == 0:
			x.idle++
			x.s.m.retries.WithLabelValues("stale").Inc()
		default:
			return f
		}
		f = x.decode(leg{body: x.text(), cached: -1})
	}
	return f
}

// maxIdle is how often a request is sent again because its connection had been idle.
const maxIdle = 1

// text returns the unmodified body for a leg.
func (x *exchange) text() kvtransfer.Pieces { return kvtransfer.Pieces{x.body.Text()} }

// request creates the request of a leg to base.
func (x *exchange) request(ctx context.Context, base *url.URL, body kvtransfer.Pieces) *http.Request {
	u := *x.r.URL
	u.Scheme, u.Host = base.Scheme, base.Host
	r := (&http.Request{
		Method: x.r.Method, URL: &u, Host: x.r.Host, Header: x.r.Header.Clone(), Body: x.in.Send(body), ContentLength: int64(body.Len()),
		GetBody: func() (io.ReadCloser, error) { return x.in.Send(body), nil },
	}).WithContext(ctx)
	clean(r.Header)
	dropHops(r.Header)
	delete(r.Header, "Content-Length")
	delete(r.Header, "Expect")
	if x.apart { // both engines would apply it
		delete(r.Header, headerRank)
	}
	r.Header["Accept-Encoding"] = identity // responses are inspected
	return r
}

var identity = []string{"identity"}

// hops are the hop-by-hop headers, in net/http's spelling.
var hops = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func dropHops(h http.Header) {
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hops {
		delete(h, name)
	}
}

// fail responds with an error in the engines' format.
func (x *exchange) fail(status int, message string) {
	x.reportFaults()
	x.traceFailure(status, message)
	writeError(x.w, status, message)
}

// reportKVTransfer adds the report to the response header.
func (x *exchange) reportKVTransfer() { x.w.Header().Set(request.HeaderKVTransfer, x.report.Text()) }

// reportFaults adds the failed prefill legs to the response header.
func (x *exchange) reportFaults() {
	if text := x.report.Faults.Text(); text != "" {
		x.w.Header().Set(request.HeaderFaults, text)
	}
}

// unreported removes headers that only this proxy may send in responses.
func unreported(h http.Header) {
	h.Del(request.HeaderKVTransfer)
	h.Del(request.HeaderFaults)
}

func writeError(w http.ResponseWriter, status int, message string) {
	kind := "InternalServerError"
	switch {
	case status == http.StatusServiceUnavailable:
		kind = "ServiceUnavailableError"
	case status < 500:
		kind = "BadRequestError"
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected
}

// unreachable responds for an engine that cannot be reached.
func (s *Server) unreachable(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		return // the client has disconnected
	}
	s.o.Log.Debug("decode engine", "error", err)
	s.m.unreachable.Inc()
	writeError(w, http.StatusServiceUnavailable, "the engine cannot be reached")
}
