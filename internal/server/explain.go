package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Explained is the answer of a dry run: the decision that a request would get
// at this moment.
type Explained struct {
	picker.Explanation
	// Knowledge is how far each endpoint's cache is known (a knowledge.State). Only
	// exact and partial ones are matched in the prompt's own space.
	Knowledge map[string]string `json:"knowledge"`
}

// explain answers POST /debug/explain: the body is the request's, its headers
// count, and the query holds its path and, optionally, the subset that the
// proxy would allow. Nothing is booked or remembered.
func (s *Server) explain(ctx context.Context, hr *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, hr.Body, int64(s.maxBody())))
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	q := hr.URL.Query()
	r := &request.Request{ID: hr.Header.Get("x-request-id"), Path: q.Get("path"), Headers: hr.Header, Body: body}
	if r.Path == "" {
		return nil, errors.New("the query parameter path is needed, such as path=/v1/chat/completions")
	}
	if q.Has("subset") {
		r.HasSubset = true
		r.Subset = strings.FieldsFunc(q.Get("subset"), func(c rune) bool { return c == ',' || c == ' ' })
	}
	if err := request.Parse(r); err != nil {
		return nil, err
	}
	out := Explained{Knowledge: map[string]string{}}
	out.Explanation, err = s.scheduler.Explain(ctx, r)
	if err != nil {
		out.Refused = err.Error()
	}
	for _, c := range out.Candidates {
		if ep := s.pool.Snapshot().Lookup(c.Endpoint); ep != nil {
			out.Knowledge[c.Endpoint] = s.share.Knowledge(ep.ID).State.String()
		}
	}
	return out, nil
}

// maxBody is the largest request body that is read.
func (s *Server) maxBody() int {
	const usual = 64 << 20
	if s.o.MaxBody > 0 {
		return s.o.MaxBody
	}
	return usual
}

// EndpointFacts are what a decision knows of an endpoint beside its gauges, so
// that a saved status can be decided about elsewhere. Times are in seconds.
type EndpointFacts struct {
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Load      LoadFacts         `json:"load"`
	Cost      endpoint.Cost     `json:"cost"`
	BlockSize int               `json:"block_size,omitempty"`
	KVBlocks  int               `json:"kv_blocks,omitempty"`
	Adapters  *AdapterFacts     `json:"adapters,omitempty"`
}

// AdapterFacts is what the engine says about its LoRA adapters (endpoint.LoRA).
type AdapterFacts struct {
	Max     int      `json:"max"`
	Running []string `json:"running,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

// LoadFacts is the in-flight book of all replicas for one endpoint.
type LoadFacts struct {
	Requests      int64   `json:"requests"`
	Waiting       int64   `json:"waiting"`
	PrefillTokens int64   `json:"prefill_tokens"`
	Pairs         float64 `json:"prefill_pairs"`
	Tokens        int64   `json:"tokens"`
	Context       int64   `json:"context_tokens"`
	Rate          float64 `json:"dispatch_rate"`
	Busy          float64 `json:"prefill_share"`       // of the last minutes' time
	SinceFirstS   float64 `json:"since_first_token_s"` // -1: never
}

// facts returns what a decision at now would know of ep.
func (s *Server) facts(ep *endpoint.Endpoint, now time.Time) *EndpointFacts {
	l, g := s.pool.Book().Load(ep, now), ep.Gauges()
	f := &EndpointFacts{
		Namespace: ep.Namespace, Labels: ep.Labels, Cost: *ep.Cost(), BlockSize: g.BlockSize, KVBlocks: g.Blocks,
		Load: LoadFacts{
			Requests: l.Requests, Waiting: l.Waiting, PrefillTokens: l.Prefill, Pairs: l.Pairs, Tokens: l.Tokens, Context: l.Context,
			Rate: l.Rate, Busy: l.Busy, SinceFirstS: -1,
		},
	}
	if a := ep.LoRA(); a != nil {
		f.Adapters = (*AdapterFacts)(a)
	}
	if l.LastFirst != 0 {
		f.Load.SinceFirstS = time.Duration(now.UnixNano() - l.LastFirst).Seconds()
	}
	return f
}

// Spec returns the endpoint as discovery would describe it; false when the
// address is none.
func (e *EndpointStatus) Spec() (endpoint.Spec, bool) {
	addr, err := netip.ParseAddrPort(e.Address)
	spec := endpoint.Spec{Name: e.Name, Host: addr.Addr().String(), Addr: addr}
	if e.Facts != nil {
		spec.Namespace, spec.Labels = e.Facts.Namespace, e.Facts.Labels
	}
	return spec, err == nil
}

// Restore gives ep of the pool the state that e describes, as of now. Without
// facts, all requests in flight count as decoding and of unknown length.
func (e *EndpointStatus) Restore(p *endpoint.Pool, ep *endpoint.Endpoint, now time.Time) {
	ep.SetDown(!e.Up)
	g := endpoint.Gauges{Waiting: e.Waiting, Running: e.Running, KVUse: e.KVUse}
	load := endpoint.Load{Requests: e.InFlight}
	if f := e.Facts; f != nil {
		g.BlockSize, g.Blocks, g.LoRA = f.BlockSize, f.KVBlocks, (*endpoint.LoRA)(f.Adapters)
		load = endpoint.Load{
			Requests: f.Load.Requests, Waiting: f.Load.Waiting, Prefill: f.Load.PrefillTokens, Pairs: f.Load.Pairs,
			Tokens: f.Load.Tokens, Context: f.Load.Context, Rate: f.Load.Rate, Busy: f.Load.Busy,
		}
		if f.Load.SinceFirstS >= 0 {
			load.LastFirst = now.Add(-seconds(f.Load.SinceFirstS)).UnixNano()
		}
		ep.SetPriorCost(f.Cost)
	}
	if e.GaugeAgeS >= 0 {
		g.At = now.Add(-seconds(e.GaugeAgeS))
		ep.SetGauges(g)
	}
	p.Book().SetRemote(ep, load)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
