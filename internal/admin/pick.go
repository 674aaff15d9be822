package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/extproc"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Names of the pick protocol.
const (
	headerPickID    = "X-Pick-Id"
	headerPickModel = "X-Pick-Model" // the engine's name for the model
	headerNext      = request.HeaderFallback

	pickIDLen = 24 // hexadecimal digits in a pick's ID
)

// PickOptions configure a Pick. Chooser is required.
type PickOptions struct {
	Bind       string // host:port; except on loopback it requires Token
	Ends       string // host:port or unix:PATH for datagrams with access log lines that end picks; "" for none
	Chooser    request.Chooser
	Token      string                // required bearer token; "" for none
	Trust      func() *request.Trust // decides whose intent headers count; nil: all clients'
	KVTransfer kvtransfer.Policy     // body fields that only proxies may set; they cannot be removed here
	Control    bool                  // place calls that control engines too
	MaxBody    int                   // bytes of a body that are read; 0: 1 MiB
	MaxOpen    int                   // open picks per caller; 0: 4096
	Expiry     time.Duration         // after which a pick counts as ended; 0: 10 min
	Timeout    time.Duration         // for receiving a body; 0: 10 s
	Budget     *budget.Budget        // memory for bodies; nil: unlimited
	Listeners  *budget.Listeners     // limits connections; nil: unlimited
	Registerer prometheus.Registerer
	Log        *slog.Logger
	Now        func() time.Time
}

// Pick serves proxies without external processing. POST /v1/pick with the client's request returns
// the endpoint. POST /v1/pick/ID/end, or a line of the proxy's access log, reports the end. A pick
// without an end expires. Safe for concurrent use.
type Pick struct {
	o    PickOptions
	http *http.Server
	lis  net.Listener
	ends net.PacketConn // nil: none
	done sync.WaitGroup

	mu   sync.Mutex
	open map[string]*openPick
	each map[netip.Addr]int // open picks per caller

	picks *prometheus.CounterVec
}

type openPick struct {
	d      *request.Decision
	caller netip.Addr
	timer  *time.Timer
}

var errPickToken = errors.New("pick: a token is required except on loopback")

// OpenPick listens and serves until Close.
func OpenPick(o PickOptions) (*Pick, error) {
	p, err := newPick(o)
	if err != nil {
		return nil, err
	}
	if p.lis, err = net.Listen("tcp", o.Bind); err != nil {
		return nil, fmt.Errorf("pick: listen on %s: %w", o.Bind, err)
	}
	if at, ok := p.lis.Addr().(*net.TCPAddr); o.Token == "" && (!ok || !at.IP.IsLoopback()) {
		p.lis.Close()
		return nil, errPickToken
	}
	if o.Ends != "" {
		if p.ends, err = listenEnds(o.Ends); err != nil {
			p.lis.Close()
			return nil, err
		}
		p.done.Go(p.readEnds)
	}
	lis := o.Listeners.LimitRequests("pick", 8, p.lis)
	p.http = &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: p.o.Timeout, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug)}
	p.done.Go(func() {
		if err := p.http.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			p.o.Log.Error("pick listener stopped", "error", err)
		}
	})
	return p, nil
}

func newPick(o PickOptions) (*Pick, error) {
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	if o.MaxOpen <= 0 {
		o.MaxOpen = 4096
	}
	if o.Expiry <= 0 {
		o.Expiry = 10 * time.Minute
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	p := &Pick{o: o, open: map[string]*openPick{}, each: map[netip.Addr]int{}}
	p.picks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "grapevine_pick_total", Help: "Picks for proxies that do not speak external processing: picked, refused, ended, expired, unknown."}, []string{"result"})
	if o.Registerer != nil {
		if err := o.Registerer.Register(p.picks); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Addr returns the listen address.
func (p *Pick) Addr() net.Addr { return p.lis.Addr() }

// EndsAddr returns the address for access log lines, or nil.
func (p *Pick) EndsAddr() net.Addr {
	if p.ends == nil {
		return nil
	}
	return p.ends.LocalAddr()
}

// Close stops the listeners and ends all picks.
func (p *Pick) Close() error {
	err := p.http.Close()
	if p.ends != nil {
		err = errors.Join(err, p.ends.Close())
	}
	p.done.Wait()
	p.mu.Lock()
	ids := make([]string, 0, len(p.open))
	for id := range p.open {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.end(id, request.Outcome{At: p.o.Now()})
	}
	return err
}

// Handler handles the two calls.
func (p *Pick) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pick", p.allowed(p.pick))
	mux.HandleFunc("GET /v1/pick", p.allowed(p.pick)) // for proxies that do not send the body
	mux.HandleFunc("POST /v1/pick/{id}/end", p.allowed(p.finish))
	return mux
}

// allowed checks the token.
func (p *Pick) allowed(next http.HandlerFunc) http.HandlerFunc {
	want := sha256.Sum256([]byte("Bearer " + p.o.Token))
	return func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if p.o.Token != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

// pickHeaders are the client's headers as forwarded by the proxy.
type pickHeaders struct{ http.Header }

// Get implements request.Headers.
func (h pickHeaders) Get(name string) string { return h.Header.Get(name) }

func (p *Pick) pick(w http.ResponseWriter, r *http.Request) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	caller := from.Addr()
	if err != nil || !p.reserve(caller) {
		p.refuse(w, request.Errorf(request.ReasonOverloaded, "%d picks of this caller have not ended", p.o.MaxOpen))
		return
	}
	d, err := p.choose(r)
	if err != nil {
		p.unreserve(caller)
		p.refuse(w, err)
		return
	}
	id := p.keep(d, caller)
	h := w.Header()
	h.Set(request.HeaderDestination, d.Endpoints[0])
	h.Set(headerPickID, id)
	if d.ModelTarget != "" {
		h.Set(headerPickModel, d.ModelTarget)
	}
	for _, s := range d.SetHeaders {
		h.Set(s.Name, s.Value)
	}
	answer := map[string]string{"id": id, "destination": d.Endpoints[0]}
	if len(d.Endpoints) > 1 {
		h.Set(headerNext, d.Endpoints[1])
		answer["fallback"] = d.Endpoints[1]
	}
	h.Set("Content-Type", "application/json")
	p.picks.WithLabelValues("picked").Inc()
	if err := json.NewEncoder(w).Encode(answer); err != nil || r.Context().Err() != nil {
		p.end(id, request.Outcome{At: p.o.Now()}) // the caller has disconnected
	}
}

// choose parses the client's request as far as it was received and asks the chooser.
func (p *Pick) choose(r *http.Request) (*request.Decision, error) {
	uri := r.Header.Get("X-Original-Uri")
	if uri == "" {
		uri = r.Header.Get("X-Forwarded-Uri")
	}
	path, _, _ := strings.Cut(uri, "?")
	if !p.o.Control && request.Controls(path) {
		return nil, request.Errorf(request.ReasonForbidden, "calls that control an engine are not allowed")
	}
	most := p.o.MaxBody
	if n := r.ContentLength; n >= 0 {
		most = int(min(n, int64(most)))
	}
	if !p.o.Budget.Take(budget.Bodies, most) {
		return nil, request.Errorf(request.ReasonOverloaded, "no memory left for the request body")
	}
	defer p.o.Budget.Release(budget.Bodies, most)
	body, err := readBody(r, most)
	if err != nil {
		return nil, request.Errorf(request.ReasonBadRequest, "the request body was not received")
	}
	q := &request.Request{ID: r.Header.Get("X-Request-Id"), Path: path, Headers: pickHeaders{r.Header}, Body: body}
	// A body may be truncated, and rejecting an invalid one is the engine's job. An unparsable
	// request is scheduled by its other properties.
	whole := len(body) > 0 && request.Parse(q) == nil
	if !whole {
		*q = request.Request{ID: q.ID, Path: path, Headers: q.Headers, Body: body}
		request.ParsePrefix(q)
	}
	if q.KVTransfer {
		if err := p.handedOver(body, whole); err != nil {
			return nil, err
		}
	}
	if p.o.Trust != nil {
		p.o.Trust().Apply(q, nil, nil)
	}
	d, err := p.o.Chooser.Choose(r.Context(), q)
	q.Drop()
	if err == nil && len(d.Endpoints) == 0 {
		d.Done(request.Outcome{At: p.o.Now()})
		return nil, request.Errorf(request.ReasonNoEndpoints, "no endpoint is ready")
	}
	return d, err
}

// readBody reads at most most bytes of a body.
func readBody(r *http.Request, most int) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, int64(most)))
	}
	return budget.ReadAnnounced(r.Body, most)
}

// handedOver rejects bodies with fields that only proxies may set, because the proxy forwards the
// body unchanged.
func (p *Pick) handedOver(body []byte, whole bool) error {
	wrong := request.Errorf(request.ReasonBadRequest, "request body may contain fields that only proxies may set")
	o, err := kvtransfer.Parse(body)
	if !whole || err != nil {
		return wrong
	}
	_, removed, err := p.o.KVTransfer.Apply(&o)
	switch {
	case err != nil:
		return request.Errorf(request.ReasonBadRequest, "%v", err)
	case len(removed) > 0:
		return wrong
	}
	return nil
}

func (p *Pick) refuse(w http.ResponseWriter, err error) {
	status, drop, body := extproc.Refusal(err)
	if status < 100 || status > 999 {
		status = http.StatusInternalServerError
	}
	p.picks.WithLabelValues("refused").Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(extproc.HeaderDropReason, drop)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// reserve counts a pick for a caller unless its limit is reached.
func (p *Pick) reserve(caller netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.each[caller] >= p.o.MaxOpen {
		return false
	}
	p.each[caller]++
	return true
}

func (p *Pick) unreserve(caller netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.each[caller]--; p.each[caller] <= 0 {
		delete(p.each, caller)
	}
}

// keep stores a pick until it ends.
func (p *Pick) keep(d *request.Decision, caller netip.Addr) string {
	var raw [pickIDLen / 2]byte
	_, _ = rand.Read(raw[:]) // never fails
	id := hex.EncodeToString(raw[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[id] = &openPick{d: d, caller: caller, timer: time.AfterFunc(p.o.Expiry, func() {
		if p.end(id, request.Outcome{At: p.o.Now()}) {
			p.picks.WithLabelValues("expired").Inc()
		}
	})}
	return id
}

// finish ends a pick. The query may contain the status of the engine's response.
func (p *Pick) finish(w http.ResponseWriter, r *http.Request) {
	status, _ := strconv.Atoi(r.URL.Query().Get("status"))
	o := request.Outcome{At: p.o.Now(), Status: status, Served: r.URL.Query().Get("served"), Complete: status > 0}
	result, code := "ended", http.StatusNoContent
	if !p.end(r.PathValue("id"), o) {
		result, code = "unknown", http.StatusNotFound
	}
	p.picks.WithLabelValues(result).Inc()
	w.WriteHeader(code)
}

// end releases a pick once and reports whether it was open.
func (p *Pick) end(id string, o request.Outcome) bool {
	p.mu.Lock()
	one := p.open[id]
	delete(p.open, id)
	p.mu.Unlock()
	if one == nil {
		return false
	}
	one.timer.Stop()
	p.unreserve(one.caller)
	one.d.Done(o)
	return true
}
