package admin

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
)

// ErrAddress is wrapped for a malformed address.
var ErrAddress = errors.New("admin: no address")

// maxAnswer limits how much of an error response is quoted.
const maxAnswer = 4 << 10

// Environment variables for clients: the control listener's token, and a CA file for its
// certificate.
const (
	EnvToken = "GRAPEVINE_ADMIN_TOKEN"
	EnvCA    = "GRAPEVINE_ADMIN_CA"
)

// Client is a replica's address: the host:port of its administration port, optionally with http://,
// or https://host:port or unix:PATH of its control listener.
type Client string

// transport returns the transport and the URL prefix for the replica.
func (c Client) transport() (*http.Transport, string, error) {
	t := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	if path, ok := strings.CutPrefix(string(c), "unix:"); ok {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return t, plain + "localhost", nil
	}
	if !strings.HasPrefix(string(c), "https://") {
		return t, plain + withPort(strings.TrimPrefix(c.base(), plain)), nil
	}
	if file := os.Getenv(EnvCA); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", EnvCA, err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("%s: %s contains no certificate", EnvCA, file)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, c.base(), nil
}

const plain = "http://"

// DefaultPort is the port of a replica's administration listener, and of addresses that name none.
const DefaultPort = "9090"

// withPort adds the default port to a host without one.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.ContainsAny(bare, "/ ") || strings.Contains(bare, ":") && net.ParseIP(bare) == nil {
		return host // not an address; the request reports the error
	}
	return net.JoinHostPort(bare, DefaultPort)
}

// base returns the address without a trailing slash.
func (c Client) base() string { return strings.TrimSuffix(string(c), "/") }

// Do sends a request. The caller closes the response body. Any status but 200 is an error that
// quotes the response.
func (c Client) Do(ctx context.Context, method, path string, h http.Header, body io.Reader) (*http.Response, error) {
	t, base, err := c.transport()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if h != nil {
		req.Header = h
	}
	if token := os.Getenv(EnvToken); token != "" && (!strings.HasPrefix(base, plain) || strings.HasPrefix(string(c), "unix:")) {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		var wrapped *url.Error // names the method and the address again
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		address := string(c)
		if !strings.Contains(address, ":") {
			address = req.URL.Host // with the default port
		}
		return nil, fmt.Errorf("no replica answers at %s: %w (grapevine help GV8011)", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, errors.Join(fmt.Errorf("%s: %s: %s", c, resp.Status, bytes.TrimSpace(b)), resp.Body.Close())
	}
	return resp, nil
}

// Get reads a JSON page.
func (c Client) Get(ctx context.Context, path string, into any) error {
	resp, err := c.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
