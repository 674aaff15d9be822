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

// guard authorizes clients for pages that act, or that show requests or memory. The zero value
// admits clients on this machine.
type guard struct {
	socket       bool   // the listener is a socket file: its permissions decide
	certificates bool   // clients have presented verified certificates
	token        string // "" disables tokens
	metrics      *metrics
}

// Reasons for rejecting a client, as in metrics.
const (
	refusedSite   = "cross_site"      // a page of another site sent the request
	refusedHost   = "host"            // the Host header does not name this machine
	refusedClient = "unauthenticated" // neither on this machine nor authenticated
	refusedMemory = "memory"          // no memory for the request body
)

// protect answers 403 to clients that are not admitted.
func (g guard) protect(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := g.refuse(r); reason != "" {
			g.metrics.count(reason)
			http.Error(w, "not allowed: "+reason+"; this page is only for clients on this machine or on the control listener", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// refuse returns why a client is rejected, or "".
func (g guard) refuse(r *http.Request) string {
	switch {
	case crossSite(r):
		return refusedSite
	case g.socket, g.certificates && r.TLS != nil && len(r.TLS.PeerCertificates) > 0, g.knows(r):
		return ""
	case !fromLoopback(r):
		return refusedClient
	case !loopbackName(r.Host):
		return refusedHost // DNS rebinding: a site's name resolves to this machine
	}
	return ""
}

// knows reports whether r has the token.
func (g guard) knows(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token))
	return ok && g.token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// crossSite reports whether a page of another site made a browser send r.
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

// fromLoopback reports whether r was sent from this machine to a loopback address.
func fromLoopback(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // "" for other forms, which is no address
	if !net.ParseIP(host).IsLoopback() {
		return false
	}
	// A service mesh proxy on this machine forwards remote requests from a loopback address too,
	// but to the original destination address.
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || at.IP.IsLoopback()
}

// loopbackName reports whether a Host header names this machine.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// hardened sets headers that keep browsers from doing more with a response than displaying it.
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

// unhurried removes the time limit of a page. Its handler must limit each write.
func unhurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Time{})
		h.ServeHTTP(&bounded{ResponseWriter: w, c: c}, r)
	})
}

// bounded gives each write its own deadline.
type bounded struct {
	http.ResponseWriter
	c *http.ResponseController
}

// Write writes p. It fails if the client does not read.
func (b *bounded) Write(p []byte) (int, error) {
	_ = b.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return b.ResponseWriter.Write(p)
}

// Unwrap returns the underlying writer for http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// metrics count rejected requests.
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

// charged takes memory for the request body from the budget. It answers 411 without a length and
// 503 without memory.
func (m *metrics) charged(b *budget.Budget, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n < 0 {
			http.Error(w, "the request body has no length", http.StatusLengthRequired)
			return
		}
		if n > 1<<40 || !b.Take(budget.Admin, int(n)) {
			m.count(refusedMemory)
			http.Error(w, "no memory left for the request body", http.StatusServiceUnavailable)
			return
		}
		defer b.Release(budget.Admin, int(n))
		h.ServeHTTP(w, r)
	})
}
