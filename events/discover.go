package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Paths at which engines report their event sources.
const (
	pathSources    = "/kv_event_sources" // vLLM
	pathServerInfo = "/server_info"      // SGLang
)

// Limits of an engine's answer, which is untrusted: a compromised engine could otherwise use the
// replica to reach other hosts, or exhaust its memory and file descriptors.
const (
	maxDiscovery = 256 << 10 // bytes per answer
	maxRanks     = 64        // streams per engine
	maxSources   = 8192      // entries in the answer
	minPort      = 1024
)

// Trust defines which addresses engines may name beyond their own.
type Trust struct {
	// AnyHost lets an engine name streams on other hosts than its own.
	AnyHost bool
}

// Client returns an HTTP client for engines. It follows no redirects and uses no proxy from the
// environment, so that an answer cannot redirect it.
func Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
			ResponseHeaderTimeout:  timeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true,
		},
	}
}

// Keyed returns a client that sends an API key, as required by engines started with --api-key. key
// returns "" for none.
func Keyed(c *http.Client, key func() string) *http.Client {
	k := *c
	k.Transport = keyed{c.Transport, key}
	return &k
}

type keyed struct {
	http.RoundTripper
	key func() string
}

// RoundTrip implements http.RoundTripper.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if key := k.key(); key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return k.RoundTripper.RoundTrip(r)
}

// ErrNoSources means that an engine's answer names no event stream.
var ErrNoSources = errors.New("events: no event sources")

// Discover asks the engine at baseURL (http://host:port) for its event sources, and returns
// configured if it reports none. Wildcard hosts in the answer become the engine's own host. A
// missing replay endpoint is replaced by the one in configured. Streams on other hosts are excluded
// unless trust allows them. The error, if any, is why configured was used.
func Discover(ctx context.Context, client *http.Client, baseURL string, configured []Stream, trust Trust) ([]Stream, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return configured, fmt.Errorf("events: discover: %w", err)
	}
	var problems []error
	for _, source := range []struct {
		path  string
		parse func([]byte, string) ([]Stream, error)
	}{{pathSources, ParseSources}, {pathServerInfo, ParseServerInfo}} {
		body, err := get(ctx, client, base.JoinPath(source.path).String())
		if err == nil {
			var streams []Stream
			if streams, err = source.parse(body, base.Hostname()); err == nil {
				streams, err = trust.among(streams, base.Hostname())
			}
			if err == nil {
				return completed(streams, configured), nil
			}
		}
		problems = append(problems, err)
	}
	return configured, errors.Join(problems...)
}

// among returns the acceptable streams of an engine at host: on its own host, without ports of
// system services, each publisher once.
func (t Trust) among(streams []Stream, host string) ([]Stream, error) {
	var out []Stream
	seen := map[string]bool{}
	for _, s := range streams {
		if !t.allows(s.Events, host) || seen[s.Events] {
			continue
		}
		seen[s.Events] = true
		if !t.allows(s.Replay, host) {
			s.Replay = ""
		}
		out = append(out, s)
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("%w on the engine's own host", ErrNoSources)
	case len(out) > maxRanks:
		return nil, fmt.Errorf("events: the engine names %d streams, more than %d", len(out), maxRanks)
	}
	return out, nil
}

func (t Trust) allows(endpoint, host string) bool {
	at, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= minPort && n <= 0xffff && (t.AnyHost || at == host)
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("events: discover: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("events: discover: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("events: discover: %s: %s", address, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery))
	if err != nil {
		return nil, fmt.Errorf("events: discover: %w", err)
	}
	return body, nil
}

// completed adds replay endpoints from configured where streams has none.
func completed(streams, configured []Stream) []Stream {
	for i := range streams {
		for _, c := range configured {
			if streams[i].Replay == "" && c.Rank == streams[i].Rank {
				streams[i].Replay = c.Replay
			}
		}
	}
	return streams
}

// source is one entry of GET /kv_event_sources.
type source struct {
	Rank   *int   `json:"data_parallel_rank"`
	Events string `json:"endpoint"`
	Replay string `json:"replay_endpoint"`
	Topic  string `json:"topic"`
}

// ParseSources parses the body of GET /kv_event_sources: a list, an object with a list under
// "sources", or an object keyed by rank. host replaces wildcards.
func ParseSources(body []byte, host string) ([]Stream, error) { return parseSources(body, host, true) }

// parseSources is ParseSources. outer allows nested sources, one level deep, because each level is
// parsed again.
func parseSources(body []byte, host string, outer bool) ([]Stream, error) {
	var list []source
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' {
		list, err := sourcesOf(body)
		if err != nil {
			return nil, fmt.Errorf("events: sources: %w", err)
		}
		return streamsOf(list, host)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("events: sources: %w", err)
	}
	if sources, ok := object["sources"]; ok && outer {
		return parseSources(sources, host, false)
	}
	for key, raw := range object {
		rank, err := strconv.Atoi(key)
		if err != nil {
			continue
		}
		var s source
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("events: sources: rank %d: %w", rank, err)
		}
		if s.Rank == nil {
			s.Rank = &rank
		}
		list = append(list, s)
	}
	return streamsOf(list, host)
}

// sourcesOf parses a list of sources up to the first invalid entry. The number of entries is
// limited in proportion to the answer's size.
func sourcesOf(body []byte) (list []source, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		if len(list) == maxSources {
			return nil, fmt.Errorf("more than %d", maxSources)
		}
		var s source
		if err := d.Decode(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return list, nil
}

func streamsOf(list []source, host string) ([]Stream, error) {
	var streams []Stream
	for i, s := range list {
		rank := i
		if s.Rank != nil {
			rank = *s.Rank
		}
		events, ok := reachable(s.Events, host)
		if !ok || rank < 0 || rank > 0xffff {
			continue
		}
		replay, _ := reachable(s.Replay, host)
		streams = append(streams, Stream{Rank: uint16(rank), Events: events, Replay: replay, Topic: s.Topic})
	}
	if len(streams) == 0 {
		return nil, ErrNoSources
	}
	slices.SortFunc(streams, func(a, b Stream) int { return int(a.Rank) - int(b.Rank) })
	return slices.CompactFunc(streams, func(a, b Stream) bool { return a.Rank == b.Rank }), nil
}

// reachable converts the endpoint to which a publisher is bound into one to connect to. Only TCP
// reaches another host.
func reachable(endpoint, host string) (string, bool) {
	addr, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", false
	}
	bound, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || port == "0" || port == "*" {
		return "", false
	}
	switch bound {
	case "*", "", "0.0.0.0", "::":
		bound = host
	}
	return "tcp://" + net.JoinHostPort(bound, port), true
}

// serverInfo is the part of SGLang's GET /server_info about events.
type serverInfo struct {
	Events *struct {
		Host       string `json:"endpoint_host"`
		Port       int    `json:"endpoint_port_base"`
		Topic      string `json:"topic"`
		Ranks      int    `json:"dp_size"`
		Publishers []struct {
			Rank   int    `json:"dp_rank"`
			Events string `json:"endpoint"`
		} `json:"publishers"`
	} `json:"kv_events"`
}

// ParseServerInfo parses the body of SGLang's GET /server_info. host replaces wildcards.
func ParseServerInfo(body []byte, host string) ([]Stream, error) {
	var info serverInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("events: server info: %w", err)
	}
	e := info.Events
	if e == nil {
		return nil, ErrNoSources
	}
	var list []source
	for _, p := range e.Publishers {
		list = append(list, source{Rank: &p.Rank, Events: p.Events, Topic: e.Topic})
	}
	if len(list) == 0 && e.Port > 0 && e.Port <= 0xffff {
		for rank := range min(max(e.Ranks, 1), 1024) {
			list = append(list, source{Rank: &rank, Events: tcp(e.Host, e.Port+rank), Topic: e.Topic})
		}
	}
	return streamsOf(list, host)
}
