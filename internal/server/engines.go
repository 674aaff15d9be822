package server

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

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

// engineAccess is how this replica's own requests reach engines.
type engineAccess struct {
	key engineKey
	tls *tls.Config // of the engines' own ports; nil: none. Set before the first request
}

// client returns a client for this replica's own requests to engines. It sends the engines' API key,
// and uses TLS if the engines' own ports do. The transport of c must be an *http.Transport.
func (a *engineAccess) client(c *http.Client) *http.Client {
	secured, plain := *c, c.Transport.(*http.Transport) //nolint:forcetypeassert // by contract
	secured.Transport = &engineTransport{plain: plain, secure: sync.OnceValue(func() http.RoundTripper {
		if a.tls == nil {
			return nil
		}
		t := plain.Clone()
		t.TLSClientConfig = a.tls
		return t
	})}
	return events.Keyed(&secured, a.key.get)
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

// engineKey is the API key for this replica's own requests to engines. Client requests carry their
// own.
type engineKey struct{ key atomic.Pointer[string] }

// ReadEngineKey reads a key from a file; "" means no key. The key is the first line.
func ReadEngineKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("key of the engines: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	line = bytes.TrimSpace(line)
	if len(line) == 0 || bytes.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("engine key file %s: first line is not a valid key", file)
	}
	return string(line), nil
}

// read reloads the file, if one is configured.
func (k *engineKey) read(file string) error {
	key, err := ReadEngineKey(file)
	if err == nil {
		k.key.Store(&key)
	}
	return err
}

func (k *engineKey) get() string { return *k.key.Load() }
