package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// Result is how a probe ended.
type Result uint8

// Results.
const (
	Unknown Result = iota // the endpoint answers no such question
	Passed
	Missed // it came late, or the engine has no room
	Denied // it was answered with an error, or the connection broke
	Hung   // it was not answered in its time
	numResults
)

// idles reports whether an endpoint has nothing to do, by its own word and by the book of
// all replicas. One whose page tells nothing may have.
func (m *Monitor) idles(ep *endpoint.Endpoint, now time.Time) bool {
	r := ep.Reading(now.UnixNano())
	return r.Sampled && r.Age < pageFresh && r.Waiting+r.Running == 0 && m.opts.Pool.Book().Load(ep, now).Requests == 0
}

// pageFresh is how old a page may be that says that an endpoint has nothing to do.
const pageFresh = 2 * time.Second

// probe asks an endpoint and notes the result. One that had nothing to do before and
// afterwards, and gave no answer, has no excuse.
func (m *Monitor) probe(s *sight, ep *endpoint.Endpoint) {
	idle := m.idles(ep, m.opts.Now())
	r := m.opts.Probe(m.ctx, ep)
	now := m.opts.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s.probing = false
	if m.ctx.Err() != nil {
		return
	}
	m.metrics.probed(r)
	if r == Hung && (!idle || !m.idles(ep, now)) {
		r = Missed
	}
	switch r {
	case Passed:
		s.passed++
		s.answered, s.refused, s.pace.slow, s.pace.low = now, false, false, 0
		ep.Tracker().Progress(now)
	case Missed:
		s.missed++
	case Denied, Hung:
		s.denied++
	}
}

// Prober asks engines for two tokens.
type Prober struct {
	client *http.Client
	scheme string

	mu     sync.Mutex
	models map[string]string // by address: what to ask for where nothing says
}

// Limits of probes.
const (
	probeTokens    = 8
	probeSlack     = 150 * time.Millisecond
	probePatience  = 4                // times the time that a probe is predicted to take
	probeTimeout   = 1 * time.Second  // at least
	probeLongest   = 10 * time.Second // at most
	maxProbeAnswer = 256 << 10
)

// NewProber returns a prober that speaks scheme, http or https, to the engines.
func NewProber(scheme string, transport http.RoundTripper) *Prober {
	if transport == nil {
		transport = &http.Transport{
			DialContext:       (&net.Dialer{Timeout: probeTimeout}).DialContext,
			DisableKeepAlives: true, // a connection that is dead without a sign must not speak for the engine
		}
	}
	return &Prober{
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		scheme: scheme, models: map[string]string{},
	}
}

// Probe asks ep for a short answer. It passes when that comes in about the time
// that the pool's constants predict.
func (p *Prober) Probe(ctx context.Context, ep *endpoint.Endpoint) Result {
	limit := Limit(ep)
	ctx, cancel := context.WithTimeout(ctx, max(limit, probeTimeout))
	defer cancel()
	model, err := p.model(ctx, ep)
	if err != nil {
		return failed(ctx, 0)
	}
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "1 2 3", "max_tokens": probeTokens, "temperature": 0, "stream": true})
	if err != nil {
		return Unknown
	}
	begun := time.Now()
	status, _, err := p.do(ctx, http.MethodPost, ep, "/v1/completions", body)
	switch {
	case err != nil, status >= 500:
		return failed(ctx, status)
	case status == http.StatusTooManyRequests:
		return Unknown
	case status >= 400: // it answers other questions; what it says of itself must do
		return p.ask(ctx, ep)
	case time.Since(begun) > limit:
		return Missed
	}
	return Passed
}

// failed tells a probe that an engine answered wrongly from one that it had no
// time or no room for.
func failed(ctx context.Context, status int) Result {
	switch {
	case ctx.Err() != nil:
		return Hung
	case status == http.StatusServiceUnavailable:
		return Missed
	}
	return Denied
}

// Limit returns how long a probe of ep may take.
func Limit(ep *endpoint.Endpoint) time.Duration {
	c := ep.Cost()
	s := c.Base + c.Prefill(endpoint.Work{Input: 8, New: 8}) + probeTokens*c.StepOf(1, 8)
	return min(probeSlack+time.Duration(probePatience*s*float64(time.Second)), probeLongest)
}

// ask is the probe of an engine that completes no text.
func (p *Prober) ask(ctx context.Context, ep *endpoint.Endpoint) Result {
	status, _, err := p.do(ctx, http.MethodGet, ep, "/health", nil)
	switch {
	case err != nil, status >= 500:
		return failed(ctx, status)
	case status == http.StatusOK:
		return Passed
	}
	return Unknown
}

// model returns a model that ep serves.
func (p *Prober) model(ctx context.Context, ep *endpoint.Endpoint) (string, error) {
	if len(ep.Models) > 0 {
		return ep.Models[0], nil
	}
	p.mu.Lock()
	name := p.models[ep.Address]
	p.mu.Unlock()
	if name != "" {
		return name, nil
	}
	_, body, err := p.do(ctx, http.MethodGet, ep, "/v1/models", nil)
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) == nil && len(list.Data) > 0 {
		name = list.Data[0].ID
		p.mu.Lock()
		if len(p.models) > maxModels {
			clear(p.models)
		}
		p.models[ep.Address] = name
		p.mu.Unlock()
	}
	return name, nil
}

const maxModels = 4096

func (p *Prober) do(ctx context.Context, method string, ep *endpoint.Endpoint, path string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.scheme+"://"+ep.Address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "grapevine-probe")
	resp, err := p.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeAnswer))
	return resp.StatusCode, answer, err
}
