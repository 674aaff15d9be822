package sizing

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

const (
	sampled   = 512              // ended requests in a sample
	evidence  = 30               // ended requests before there is a number
	sampleAge = 10 * time.Minute // after which a request does not count
	readEvery = 5 * time.Second  // minimum interval of readings
	sustained = time.Minute      // a rate counts when it was not lower for so long
	headroom  = .1               // growth of the load that the endpoints can take; it must fall by as much before the number does
	most      = 10_000           // endpoints
	models    = 64               // base models with a number
)

// Meter measures the demand of a pool. It is safe for concurrent use.
type Meter struct {
	pool   *endpoint.Pool
	target Target
	now    func() time.Time

	wanted *prometheus.Desc

	reading sync.Mutex // one reading at a time; locked before mu
	mu      sync.Mutex // guards bases and their samples; requests take it when they end
	bases   map[string]*demand
}

// demand is the demand of one base model.
type demand struct {
	ring  [sampled]Request
	at    [sampled]time.Time
	next  int // count of all requests
	since time.Time

	// Guarded by Meter.reading.
	rates []reading // of the last minute, the oldest first
	value int       // 0: unknown
	read  time.Time
}

// recent returns the sampled requests that still count.
func (d *demand) recent(now time.Time) (list []Request) {
	for i := range min(d.next, sampled) {
		if now.Sub(d.at[i]) <= sampleAge {
			list = append(list, d.ring[i])
		}
	}
	return list
}

type reading struct {
	at   time.Time
	rate float64
}

// NewMeter returns a meter for the pool's endpoints.
func NewMeter(pool *endpoint.Pool, target Target, now func() time.Time) *Meter {
	return &Meter{pool: pool, target: target, now: now, bases: map[string]*demand{}, wanted: prometheus.NewDesc(
		"grapevine_picker_endpoints_wanted",
		"Endpoints that the load of all replicas needs for the target of --size-target, with a headroom of a tenth, by base model. Absent while it is unknown.",
		[]string{"model"}, nil)}
}

// Ended records a request that an endpoint has answered. A nil Meter ignores it.
func (m *Meter) Ended(ep *endpoint.Endpoint, r Request, at time.Time) {
	if m == nil || r.Input <= 0 {
		return
	}
	base := ep.Base()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.bases[base]
	if d == nil {
		if len(m.bases) >= models {
			return
		}
		d = &demand{since: at}
		m.bases[base] = d
	}
	d.ring[d.next%sampled], d.at[d.next%sampled] = r, at
	d.next++
}

// Wanted returns the number of endpoints that a base model needs, false if it is unknown.
func (m *Meter) Wanted(base string) (int, bool) {
	m.reading.Lock()
	defer m.reading.Unlock()
	now := m.now()
	var sample []Request
	m.mu.Lock()
	d := m.bases[base]
	due := d != nil && now.Sub(d.read) >= readEvery
	if due {
		sample = d.recent(now)
	}
	m.mu.Unlock()
	if d == nil {
		return 0, false
	}
	if due {
		d.read = now
		m.measure(base, d, sample, now)
	}
	return d.value, d.value > 0
}

// measure updates the number of a base model: the endpoints for the load with headroom. The number
// falls only when the load with twice the headroom needs fewer, so that it does not alternate.
func (m *Meter) measure(base string, d *demand, sample []Request, now time.Time) {
	load := m.demand(base, d, sample, now)
	if load == nil {
		if d.value, d.rates = 0, nil; len(m.pool.Snapshot().ByBaseModel(base)) == 0 {
			m.mu.Lock()
			delete(m.bases, base)
			m.mu.Unlock()
		}
		return
	}
	load.Rate *= 1 + headroom
	up := load.Wanted(m.target, most)
	load.Rate *= 1 + headroom
	down := load.Wanted(m.target, most)
	d.value = min(max(d.value, up), down)
}

// demand returns the demand of a base model, nil if it is unknown.
func (m *Meter) demand(base string, d *demand, sample []Request, now time.Time) *Demand {
	if len(sample) < evidence {
		return nil
	}
	out := &Demand{Requests: sample}
	prior := 0.0 // mean seconds of prefill by the prior constants
	for _, r := range sample {
		prior += endpoint.PriorCost.Prefill(endpoint.Work{Input: int(r.Input), New: int(r.New)})
	}
	short, long, memory := 0.0, 0.0, 0.0
	s := m.pool.Snapshot()
	for _, i := range s.ByBaseModel(base) {
		ep := s.Endpoints[i]
		if ep.Role&endpoint.RoleDecode == 0 {
			return nil // prefill and decode endpoints need numbers of their own
		}
		load, cost := m.pool.LoadTracker().Load(ep, now), ep.Cost()
		short, long = short+load.Rate, long+load.Busy/cost.Idle
		gauges := ep.Reading(now.UnixNano())
		for range max(gauges.Ranks, 1) {
			out.Ranks = append(out.Ranks, *cost)
		}
		out.Endpoints++
		memory += gauges.Capacity
	}
	if out.Endpoints == 0 {
		return nil
	}
	out.Memory = memory / float64(len(out.Ranks))
	out.Rate = max(d.sustained(short, now), warm(long*float64(len(out.Requests))/max(prior, 1e-9), now.Sub(d.since)))
	return out
}

// warm corrects an average over five minutes that began at 0 some time ago.
func warm(rate float64, since time.Duration) float64 {
	return rate / max(1-math.Exp(-since.Minutes()/5), .2)
}

// sustained returns the lowest rate of the last minute, which a burst of seconds does not raise.
func (d *demand) sustained(rate float64, now time.Time) float64 {
	d.rates = append(d.rates, reading{now, rate})
	for len(d.rates) > 1 && now.Sub(d.rates[1].at) >= sustained {
		d.rates = d.rates[1:]
	}
	if now.Sub(d.rates[0].at) < sustained {
		return 0
	}
	for _, r := range d.rates {
		rate = min(rate, r.rate)
	}
	return rate
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(out chan<- *prometheus.Desc) { out <- m.wanted }

// Collect implements prometheus.Collector.
func (m *Meter) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	var names []string
	for name := range m.bases {
		names = append(names, name)
	}
	m.mu.Unlock()
	for _, name := range names {
		if n, ok := m.Wanted(name); ok {
			out <- prometheus.MustNewConstMetric(m.wanted, prometheus.GaugeValue, float64(n), name)
		}
	}
}
