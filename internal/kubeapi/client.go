package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Limits.
const (
	maxAnswer   = 16 << 20 // of one object or error
	dialTimeout = 5 * time.Second
	callTimeout = 30 * time.Second
	tokenAge    = time.Minute
	pingAfter   = 15 * time.Second // idle time of a connection
)

// Resource is a resource type.
type Resource struct {
	Group   string // "" for the core group
	Version string
	Plural  string
}

// Path returns the path of all objects in a namespace, or of one.
func (r Resource) Path(namespace, name string) string {
	p := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		p = "/api/" + r.Version
	}
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + r.Plural
	if name != "" {
		p += "/" + name
	}
	return p
}

// String returns the type in kubectl's notation, such as pods or
// inferencepools.inference.networking.k8s.io.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

// Client is a client of one API server.
type Client struct {
	config Config
	http   *http.Client
	agent  string

	mu      sync.Mutex
	token   string
	tokenAt time.Time
}

// NewClient returns a client. agent is its user agent.
func NewClient(c Config, agent string) (*Client, error) {
	t := &tls.Config{InsecureSkipVerify: c.SkipVerify, ServerName: c.ServerName, MinVersion: tls.VersionTLS12} //nolint:gosec // where the user's file says so
	if len(c.CA) > 0 {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("kubeapi: the server CA is not a PEM certificate")
		}
	}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("kubeapi: client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	if u, err := url.Parse(c.Server); err != nil || u.Host == "" {
		return nil, fmt.Errorf("kubeapi: %q is not a valid server URL", c.Server)
	}
	dial := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: t, TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 256 << 10,
		// Detect a server that vanished silently, also during an idle watch.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	return &Client{config: c, agent: agent, http: &http.Client{Transport: transport}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server returns the server's URL.
func (c *Client) Server() string { return c.config.Server }

// call is one request.
type call struct {
	verb        string // RBAC verb: get, list, watch, create, patch, delete
	method      string
	resource    Resource
	sub         string // subresource, "" for none
	namespace   string
	name        string
	query       url.Values
	body        any
	contentType string
}

func (k call) rule() Rule {
	r := Rule{Group: k.resource.Group, Resource: k.resource.Plural, Verbs: []string{k.verb}, Namespace: k.namespace, Name: k.name}
	if k.sub != "" {
		r.Resource += "/" + k.sub
	}
	if k.verb == "create" {
		r.Name = "" // RBAC cannot limit creation to a name
	}
	return r
}

// open sends a request and returns the body of a successful response. Otherwise the error is an
// *Error.
func (c *Client) open(ctx context.Context, k call) (io.ReadCloser, error) {
	var body io.Reader
	if k.body != nil {
		data, err := json.Marshal(k.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	path := k.resource.Path(k.namespace, k.name)
	if k.sub != "" {
		path += "/" + k.sub
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.config.Server+path+"?"+k.query.Encode(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", k.contentType)
	}
	if token, err := c.bearer(); err != nil {
		return nil, err
	} else if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the resource is more useful than the URL
		}
		return nil, fmt.Errorf("%s %s: %w", k.verb, k.resource, err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res.Body, nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		c.forget()
	}
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return nil, k.answered(errorOf(res.StatusCode, data))
}

// answered adds the request's data to a server error.
func (k call) answered(e *Error) *Error {
	e.Verb, e.Rule = k.verb, k.rule()
	return e
}

// do sends a request and decodes the response into out, unless that is nil.
func (c *Client) do(ctx context.Context, k call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string, out any) error {
	return c.do(ctx, call{verb: "get", method: http.MethodGet, resource: r, namespace: namespace, name: name}, out)
}

// Create creates an object.
func (c *Client) Create(ctx context.Context, r Resource, namespace string, object any) error {
	return c.do(ctx, call{verb: "create", method: http.MethodPost, resource: r, namespace: namespace, body: object, contentType: "application/json"}, nil)
}

// Patch is the target of a write.
type Patch struct {
	Resource  Resource
	Namespace string
	Name      string
	Sub       string // subresource, "" for none
	Manager   string // field manager
}

// Apply applies the object's fields (server-side apply).
func (c *Client) Apply(ctx context.Context, p Patch, object any) error {
	return c.do(ctx, call{
		verb: "patch", method: http.MethodPatch, resource: p.Resource, namespace: p.Namespace, name: p.Name, sub: p.Sub, body: object,
		contentType: "application/apply-patch+yaml", query: url.Values{"fieldManager": {p.Manager}, "force": {"true"}},
	}, nil)
}

// Merge merges object into an existing one. If object has a metadata.resourceVersion, the server
// answers 409 if the version has changed.
func (c *Client) Merge(ctx context.Context, p Patch, object any) error {
	return c.do(ctx, call{
		verb: "patch", method: http.MethodPatch, resource: p.Resource, namespace: p.Namespace, name: p.Name, sub: p.Sub, body: object,
		contentType: "application/merge-patch+json", query: url.Values{"fieldManager": {p.Manager}},
	}, nil)
}

// Delete deletes an object if its UID and version match; otherwise the error has status 409.
func (c *Client) Delete(ctx context.Context, p Patch, uid, version string) error {
	return c.do(ctx, call{
		verb: "delete", method: http.MethodDelete, resource: p.Resource, namespace: p.Namespace, name: p.Name, contentType: "application/json",
		body: map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": uid, "resourceVersion": version}},
	}, nil)
}

// bearer returns the token, or "".
func (c *Client) bearer() (string, error) {
	if c.config.TokenFile == "" {
		return c.config.Token, nil
	}
	c.mu.Lock()
	token, at := c.token, c.tokenAt
	c.mu.Unlock()
	if time.Since(at) < tokenAge {
		return token, nil
	}
	data, err := os.ReadFile(c.config.TokenFile)
	if err != nil {
		return "", fmt.Errorf("kubeapi: token: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.tokenAt = strings.TrimSpace(string(data)), time.Now()
	return c.token, nil
}

// forget discards the cached token.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokenAt = time.Time{}
}
