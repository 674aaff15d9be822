package server

import (
	"net/http"
	"sync"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/picker/config"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// EngineOptions describe how engines are reached. They apply if the configuration has no
// metrics-data-source, which takes precedence as a whole.
type EngineOptions struct {
	Scheme      string // http or https; "" means http
	MetricsPath string // "" means /metrics
	MetricsPort int    // 0 means the engine's own port
	Verify      bool   // verify the certificates of engines with https
}

// apply sets the options in a configuration that has no metrics-data-source.
func (o *EngineOptions) apply(c *config.Config) {
	m := &c.Metrics
	if m.Scheme != "" {
		return
	}
	m.Scheme, m.Path, m.Port, m.TLS = o.Scheme, o.MetricsPath, o.MetricsPort, plugin.PageTLS{SkipVerify: !o.Verify}
}

// engineClient returns a client for this replica's own requests to engines. It sends the engines' API
// key, and uses TLS if the engines' own ports do. The client's transport must be an *http.Transport.
func (s *Server) engineClient(c *http.Client) *http.Client {
	secured, plain := *c, c.Transport.(*http.Transport) //nolint:forcetypeassert // by contract
	secured.Transport = &engineTransport{plain: plain, secure: sync.OnceValue(func() http.RoundTripper {
		if s.engineTLS == nil {
			return nil
		}
		t := plain.Clone()
		t.TLSClientConfig = s.engineTLS
		return t
	})}
	return events.Keyed(&secured, s.engineKey.get)
}

// engineTransport sends requests to engines.
type engineTransport struct {
	plain  http.RoundTripper
	secure func() http.RoundTripper // returns nil if engines use no TLS. Not called before the configuration is read
}

// RoundTrip implements [http.RoundTripper].
func (t *engineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	secure := t.secure()
	if secure == nil {
		return t.plain.RoundTrip(r)
	}
	if r.URL.Scheme != "https" {
		r = r.Clone(r.Context())
		r.URL.Scheme = "https"
	}
	return secure.RoundTrip(r)
}
