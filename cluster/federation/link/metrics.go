package link

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
)

// meter computes rates of counters over the last few seconds.
type meter struct {
	at    time.Time
	last  map[string]federation.Traffic
	rates map[string]Rates
}

// Rates are the bytes per second to and from another cluster.
type Rates struct {
	In  float64 `json:"in"`
	Out float64 `json:"out"`
}

// meterPause is the period of a rate.
const meterPause = 5 * time.Second

func (m *meter) measure(list []federation.Traffic, now time.Time) {
	d := now.Sub(m.at)
	if d < meterPause {
		return
	}
	next := map[string]federation.Traffic{}
	rates := map[string]Rates{}
	for _, t := range list {
		next[t.Cluster] = t
		if was, ok := m.last[t.Cluster]; ok {
			rates[t.Cluster] = Rates{
				In:  float64(t.Asked+t.Received-was.Asked-was.Received) / d.Seconds(),
				Out: float64(t.Answered+t.Sent-was.Answered-was.Sent) / d.Seconds(),
			}
		}
	}
	m.at, m.last, m.rates = now, next, rates
}

// metrics reads the view and the counters on each scrape.
type metrics struct{ l *Link }

func newMetrics(l *Link) *metrics { return &metrics{l} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("grapevine_federation_"+name, help, labels, nil)
}

var (
	descState    = desc("cluster_state", "1 for the current state of another cluster: live, draining, refused or silent.", "cluster", "state")
	descSeveral  = desc("cluster_name_shared", "1 while several replica groups use another cluster's name: two clusters have it, or its replicas cannot reach each other.", "cluster")
	descLease    = desc("lease_seconds", "Time until the lease of another cluster's data ends; 0 once it has ended.", "cluster")
	descRTT      = desc("round_trip_seconds", "Smoothed round-trip time of requests to another cluster.", "cluster")
	descPools    = desc("pools", "Pools of another cluster, by state.", "cluster", "state")
	descBytes    = desc("bytes_total", "Bytes between this replica and another cluster: requests and answers of both sides.", "cluster", "direction")
	descSessions = desc("sessions", "Replicas of another cluster that send requests to this replica.", "cluster")
	descFilter   = desc("filter_bytes", "Size of another cluster's filter of hot prefixes that is used here.", "cluster", "pool")
	descHeld     = desc("filter_blocks", "Blocks in that filter, as reported by its cluster.", "cluster", "pool")
	descMade     = desc("made_filter_blocks", "Blocks in the filters that this replica makes for another cluster.", "cluster")
	descOmitted  = desc("made_filter_omitted", "Blocks that did not fit in these filters; the other cluster counts them as absent.", "cluster")
	descHot      = desc("hot_blocks", "Blocks in the hot set of a pool of this cluster.", "pool")
	descRefused  = desc("refused_total", "Rejected connections and messages, by reason.", "reason")
	descPaced    = desc("paced_total", "Messages of another cluster above its rate limit: later ones were delayed, or rejected over NATS.", "cluster")
	descDropped  = desc("dropped_total", "Messages dropped because a queue was full; they are requested again.")
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descState, descSeveral, descLease, descRTT, descPools, descBytes, descSessions, descFilter, descHeld, descMade, descOmitted, descHot, descRefused, descPaced, descDropped,
	} {
		ch <- d
	}
}

var allStates = [...]federation.State{federation.Silent, federation.Refused, federation.Draining, federation.Live}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	now := time.Now()
	for _, c := range m.l.View().Clusters {
		pools := map[federation.State]int{}
		for _, p := range c.Pools {
			pools[stateAt(p.State, p.Until, now)]++
			gauge(descFilter, float64(p.Filter.Bytes()), c.Name, p.Pool.String())
			gauge(descHeld, float64(p.FilterHead.Blocks), c.Name, p.Pool.String())
		}
		state := stateAt(c.State, c.Until, now)
		for _, s := range allStates {
			is := 0.0
			if s == state {
				is = 1
			}
			gauge(descState, is, c.Name, s.String())
			gauge(descPools, float64(pools[s]), c.Name, s.String())
		}
		several := 0.0
		if c.Several {
			several = 1
		}
		gauge(descSeveral, several, c.Name)
		gauge(descLease, max(c.Until.Sub(now).Seconds(), 0), c.Name)
		gauge(descRTT, c.RTT.Seconds(), c.Name)
	}
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	for _, t := range m.l.core.Traffic() {
		count(descBytes, t.Asked+t.Received, t.Cluster, "in")
		count(descBytes, t.Answered+t.Sent, t.Cluster, "out")
		gauge(descSessions, float64(t.Sessions), t.Cluster)
		gauge(descMade, float64(t.SourceBlocks), t.Cluster)
		gauge(descOmitted, float64(t.SourceOmitted), t.Cluster)
	}
	for k, h := range m.l.hot {
		if k.secret == m.l.secrets.use {
			gauge(descHot, float64(h.Len()), k.pool.String())
		}
	}
	reasons := map[string]uint64{}
	for r, n := range m.l.core.Refusals() {
		reasons[r] += n
	}
	for r, n := range m.l.refused {
		reasons[r] += n
	}
	for r, n := range reasons {
		count(descRefused, n, r)
	}
	count(descDropped, m.l.dropped)
	for cluster, p := range m.l.paces {
		count(descPaced, p.beyond(), cluster)
	}
}

// stateAt returns a state as of now: a lease may have ended since the view was made.
func stateAt(s federation.State, until, now time.Time) federation.State {
	if s != federation.Refused && !now.Before(until) {
		return federation.Silent
	}
	return s
}
