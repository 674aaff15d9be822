package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
)

// guard says who may use the pages that act, or tell of requests or memory. The
// zero value lets in clients on this machine.
type guard struct {
	socket       bool   // the listener is a file: who may open it is let in
	certificates bool   // clients have shown certificates that were verified
	token        string // "" lets none in by it
	metrics      *metrics
}

// Reasons for which a client is not let in, as they appear in metrics.
const (
	refusedSite   = "cross_site"      // a page of another site sent a browser here
	refusedHost   = "host"            // the name that was asked for is not this machine's
	refusedClient = "unauthenticated" // neither on this machine nor authenticated
	refusedMemory = "memory"          // no memory left for the request's body
)

// protect answers 403 to those who are not let in.
func (g guard) protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := g.refuse(r); reason != "" {
			g.metrics.count(reason)
			http.Error(w, "not allowed: "+reason+"; this page is for clients on this machine, or of the control listener", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// refuse returns why a client is not let in, "" when it is.
func (g guard) refuse(r *http.Request) string {
	switch {
	case crossSite(r):
		return refusedSite
	case g.socket, g.certificates && r.TLS != nil && len(r.TLS.PeerCertificates) > 0, g.knows(r):
		return ""
	case !fromLoopback(r):
		return refusedClient
	case !loopbackName(r.Host):
		return refusedHost // a browser that was told another address for its site's name
	}
	return ""
}

// knows tells whether r carries the token.
func (g guard) knows(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token))
	return ok && g.token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// crossSite tells whether a page of another site made a browser send r.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || u.Host != r.Host
}

// fromLoopback tells whether r came from this machine to an address of this
// machine alone.
func fromLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || !ip.IsLoopback() {
		return false
	}
	// A mesh's proxy beside us passes on what comes from elsewhere by a loopback
	// address too, but to the address that was asked for.
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || at.IP.IsLoopback()
}

// loopbackName tells whether a Host header names this machine.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// hardened sets the headers that keep browsers from doing more with an answer than
// show it.
func hardened(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nonce := rand.Text()
		r = r.WithContext(withNonce(r.Context(), nonce))
		set := w.Header().Set
		set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		set("X-Content-Type-Options", "nosniff")
		set("X-Frame-Options", "DENY")
		set("Referrer-Policy", "no-referrer")
		set("Cross-Origin-Resource-Policy", "same-origin")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// unhurried lets a page answer for as long as it takes; its handler must bound
// each write.
func unhurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Time{})
		h.ServeHTTP(&bounded{ResponseWriter: w, c: c}, r)
	})
}

// bounded gives each write writeTimeout.
type bounded struct {
	http.ResponseWriter
	c *http.ResponseController
}

// Write writes, unless the client does not read.
func (b *bounded) Write(p []byte) (int, error) {
	_ = b.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return b.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController the writer below.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// metrics count who is not served.
type metrics struct{ refused *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "grapevine_admin_refused_total", Help: "Requests to the administration listeners that were refused."}, []string{"reason"}),
	}
	if r != nil {
		r.MustRegister(m.refused)
	}
	return m
}

func (m *metrics) count(reason string) {
	if m != nil {
		m.refused.WithLabelValues(reason).Inc()
	}
}

// charged takes the memory of a request's body from the budget: 411 without a
// length, 503 when there is not so much left.
func (m *metrics) charged(b *budget.Budget, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n < 0 {
			http.Error(w, "the request's body has no length", http.StatusLengthRequired)
			return
		}
		if n > 1<<40 || !b.Take(budget.Admin, int(n)) {
			m.count(refusedMemory)
			http.Error(w, "no memory left for the request's body", http.StatusServiceUnavailable)
			return
		}
		defer b.Release(budget.Admin, int(n))
		h.ServeHTTP(w, r)
	})
}
