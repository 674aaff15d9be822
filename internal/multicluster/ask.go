package multicluster

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
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/link"
	"github.com/grapevine-epp/grapevine/picker/remotecluster"
	"github.com/grapevine-epp/grapevine/picker/request"
)

const (
	maxAsks    = 256       // in progress, and as many outcome reports
	maxAskBody = 512 << 10 // larger requests go to the gateway, to avoid sending them twice
	maxPicked  = 4 << 10   // bytes of an answer
	endTime    = 2 * time.Second
)

var (
	errAsks     = errors.New("too many questions in progress")
	errAskBody  = errors.New("request is too large to be sent twice")
	errNotAsked = errors.New("the cluster has no reachable picker")
)

// asker asks remote clusters' pickers for endpoints, over the HTTP interface for proxies without
// external processing. Safe for concurrent use.
type asker struct {
	clusters map[string]*askClient
	slots    chan struct{}   // questions in progress
	ends     chan struct{}   // outcome reports in progress
	ctx      context.Context // for outcome reports
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// askClient is the configuration for asking one cluster.
type askClient struct {
	token string
	tls   func(sni string) *tls.Config
	mu    sync.Mutex
	by    map[string]*http.Client // by server name; "" is plaintext
}

func newAsker() *asker {
	a := &asker{clusters: map[string]*askClient{}, slots: make(chan struct{}, maxAsks), ends: make(chan struct{}, maxAsks)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// trust reads the credentials for a federation's clusters.
func (a *asker) trust(c *link.Config) error {
	for i := range c.Peers {
		p := &c.Peers[i]
		if p.PickTokenFile == "" {
			continue
		}
		token, err := os.ReadFile(p.PickTokenFile)
		if err != nil {
			return fmt.Errorf("federation: %w", err)
		}
		var roots *x509.CertPool // nil: the system's
		if c.CAFile != "" {
			pem, err := os.ReadFile(c.CAFile)
			if err != nil {
				return fmt.Errorf("federation: %w", err)
			}
			roots = x509.NewCertPool()
			roots.AppendCertsFromPEM(pem)
		}
		a.clusters[p.Name] = &askClient{token: strings.TrimSpace(string(token)), by: map[string]*http.Client{}, tls: func(sni string) *tls.Config {
			return &tls.Config{ServerName: sni, RootCAs: roots, MinVersion: tls.VersionTLS12}
		}}
	}
	return nil
}

// close cancels everything in progress. pick must not be called afterwards.
func (a *asker) close() {
	a.cancel()
	a.wg.Wait()
	for _, c := range a.clusters {
		c.mu.Lock()
		for _, h := range c.by {
			h.CloseIdleConnections()
		}
		c.mu.Unlock()
	}
}

// maxNamed is the maximum number of server names per cluster with cached connections.
const maxNamed = 8

// dialer connects to a remote cluster's announced address, except link-local addresses.
var dialer = net.Dialer{Timeout: endTime, Control: func(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Addr().Unmap().IsLinkLocalUnicast() {
		return errNotAsked
	}
	return nil
}}

// client returns the client for a server name.
func (c *askClient) client(sni string) *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.by[sni]
	if h == nil {
		t := &http.Transport{DialContext: dialer.DialContext, MaxConnsPerHost: maxAsks, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10}
		if sni != "" {
			t.TLSClientConfig = c.tls(sni)
		}
		h = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if len(c.by) >= maxNamed {
			for _, old := range c.by {
				old.CloseIdleConnections()
			}
			clear(c.by)
		}
		c.by[sni] = h
	}
	return h
}

// picked is the answer to a question.
type picked struct {
	ID          string `json:"id"`
	Destination string `json:"destination"`
}

// knows reports whether a cluster's pickers have addresses.
func (a *asker) knows(cluster string) bool { return a.clusters[cluster] != nil }

// pick is a remotecluster.Pick. It is limited by its timeout and by ctx.
func (a *asker) pick(ctx context.Context, q *remotecluster.Question) (destination string, ended func(status int), err error) {
	c := a.clusters[q.Cluster]
	switch {
	case c == nil:
		return "", nil, errNotAsked
	case len(q.Request.Body) > maxAskBody:
		return "", nil, errAskBody
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		return "", nil, errAsks
	}
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	h := c.client(q.EPP.SNI)
	p, err := ask(ctx, h, c.token, q)
	if err != nil {
		return "", nil, err
	}
	return p.Destination, func(status int) { a.end(h, c.token, q.EPP, p, status) }, nil
}

// base is a picker's base URL.
func base(epp federation.Address) string {
	scheme := "http"
	if epp.SNI != "" {
		scheme = "https"
	}
	return scheme + "://" + epp.HostPort + "/v1/pick"
}

func ask(ctx context.Context, h *http.Client, token string, q *remotecluster.Question) (p picked, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base(q.EPP), bytes.NewReader(q.Request.Body))
	if err != nil {
		return p, err
	}
	r.Host = q.EPP.Host
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Original-Uri", q.Request.Path)
	r.Header.Set("X-Request-Id", q.Request.ID)
	r.Header.Set(request.HeaderHop, q.Token)
	for _, name := range passedOn {
		if v := q.Request.Headers; v != nil && v.Get(name) != "" {
			r.Header.Set(name, v.Get(name))
		}
	}
	answer, err := h.Do(r)
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxPicked))
	if err != nil {
		return p, err
	}
	if answer.StatusCode != http.StatusOK {
		return p, remotecluster.Refused{Status: answer.StatusCode}
	}
	if err := json.Unmarshal(b, &p); err != nil || p.ID == "" {
		return p, fmt.Errorf("picker answer: %w", errors.Join(err, errNotAsked))
	}
	return p, nil
}

// passedOn are the client headers that a picker uses.
var passedOn = append(request.IntentHeaders(), "content-type", request.HeaderSession, request.HeaderSessionToken)

// end reports a request's outcome to a picker, in the background. A picker that does not receive it
// lets the pick expire.
func (a *asker) end(h *http.Client, token string, epp federation.Address, p picked, status int) {
	select {
	case a.ends <- struct{}{}:
	default:
		return
	}
	a.wg.Go(func() {
		defer func() { <-a.ends }()
		ctx, cancel := context.WithTimeout(a.ctx, endTime)
		defer cancel()
		at := base(epp) + "/" + url.PathEscape(p.ID) + "/end?status=" + strconv.Itoa(status) + "&served=" + url.QueryEscape(p.Destination)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, nil)
		if err != nil {
			return
		}
		r.Host = epp.Host
		r.Header.Set("Authorization", "Bearer "+token)
		if answer, err := h.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxPicked))
			answer.Body.Close()
		}
	})
}
