package saved

import (
	"net/netip"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/gauge"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// Facts are a decision's inputs about an endpoint in addition to its gauges. Times are in seconds.
type Facts struct {
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Load      LoadFacts         `json:"load"`
	Cost      endpoint.Cost     `json:"cost"`
	Ranks     int               `json:"ranks,omitempty"`
	BlockSize int               `json:"block_size,omitempty"`
	KVBlocks  int               `json:"kv_blocks,omitempty"`
	Slots     int64             `json:"slots,omitempty"` // sequence limit of the engine, if observed
	Adapters  *AdapterFacts     `json:"adapters,omitempty"`
}

// AdapterFacts is the engine's report on its LoRA adapters ([endpoint.LoRA]).
type AdapterFacts struct {
	Max     int      `json:"max"`
	Running []string `json:"running,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

// LoadFacts is the in-flight load of one endpoint over all replicas.
type LoadFacts struct {
	Requests      int64   `json:"requests"`
	Waiting       int64   `json:"waiting"`
	PrefillTokens int64   `json:"prefill_tokens"`
	Pairs         float64 `json:"prefill_pairs"`
	Tokens        int64   `json:"tokens"`
	Context       int64   `json:"context_tokens"`
	Rate          float64 `json:"dispatch_rate"`
	Busy          float64 `json:"prefill_share"`       // of the last minutes
	SinceFirstS   float64 `json:"since_first_token_s"` // -1: never
}

// FactsOf returns a decision's inputs about ep, an endpoint of p, at now.
func FactsOf(p *endpoint.Pool, ep *endpoint.Endpoint, now time.Time) *Facts {
	l, g := p.LoadTracker().Load(ep, now), ep.Gauges()
	f := &Facts{
		Namespace: ep.Namespace, Labels: ep.Labels, Cost: *ep.Cost(), Ranks: g.Ranks, BlockSize: g.BlockSize, KVBlocks: g.Blocks, Slots: ep.Reading(now.UnixNano()).Slots,
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

// Endpoint is the part of an endpoint's status that a decision needs, as written by grapevine
// status -o json.
type Endpoint struct {
	Address  string `json:"address"`
	Name     string `json:"name"`
	Up       bool   `json:"up"`
	InFlight int64  `json:"in_flight"`
	gauge.Values
	GaugeAgeS float64 `json:"gauge_age_s"` // -1: never read
	Facts     *Facts  `json:"facts,omitempty"`
	Health    struct {
		State string `json:"state"`
	} `json:"health"`
}

// Spec returns the endpoint in discovery's form; false if the address is invalid.
func (e *Endpoint) Spec() (endpoint.Spec, bool) {
	addr, err := netip.ParseAddrPort(e.Address)
	spec := endpoint.Spec{Name: e.Name, Host: addr.Addr().String(), Addr: addr}
	if e.Facts != nil {
		spec.Namespace, spec.Labels = e.Facts.Namespace, e.Facts.Labels
	}
	return spec, err == nil
}

// Restore sets the state of ep to the one that e describes, as of now. Without facts, all in-flight
// requests count as decoding with unknown length.
func (e *Endpoint) Restore(p *endpoint.Pool, ep *endpoint.Endpoint, now time.Time) {
	ep.SetDown(!e.Up && e.Health.State != health.Unreached) // decisions do not consider reachability
	g := endpoint.Gauges{Values: e.Values}
	load := endpoint.Load{Requests: e.InFlight}
	if f := e.Facts; f != nil {
		g.Ranks, g.BlockSize, g.Blocks, g.LoRA = f.Ranks, f.BlockSize, f.KVBlocks, (*endpoint.LoRA)(f.Adapters)
		load = endpoint.Load{
			Requests: f.Load.Requests, Waiting: f.Load.Waiting, Prefill: f.Load.PrefillTokens, Pairs: f.Load.Pairs,
			Tokens: f.Load.Tokens, Context: f.Load.Context, Rate: f.Load.Rate, Busy: f.Load.Busy,
		}
		if f.Load.SinceFirstS >= 0 {
			load.LastFirst = now.Add(-ofSeconds(f.Load.SinceFirstS)).UnixNano()
		}
		ep.SetSlots(f.Slots, now)
		ep.SetPriorCost(f.Cost)
		if f.Cost.PrefillSeen+f.Cost.DecodeSeen > 0 {
			ep.SetRemoteCost(f.Cost) // learned rather than assumed
		}
	}
	if e.GaugeAgeS >= 0 {
		g.At = now.Add(-ofSeconds(e.GaugeAgeS))
		ep.SetGauges(g)
	}
	p.LoadTracker().SetRemote(ep, load)
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
