package link

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/federation"
)

// meter makes rates of counters, over the last few seconds.
type meter struct {
	at    time.Time
	last  map[string]federation.Traffic
	rates map[string]Rates
}

// Rates are the bytes per second between this process and another cluster.
type Rates struct {
	In  float64 `json:"in"`
	Out float64 `json:"out"`
}

// meterPause is over how long a rate is taken.
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

// metrics are read from view and counters when they are asked for.
type metrics struct{ l *Link }

func newMetrics(l *Link) *metrics { return &metrics{l} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("grapevine_federation_"+name, help, labels, nil)
}

var (
	descState    = desc("cluster_state", "1 for the state that another cluster is in: live, draining, refused or silent.", "cluster", "state")
	descSeveral  = desc("cluster_name_shared", "1 while several groups of replicas go by another cluster's name: two clusters have it, or its replicas do not hear one another.", "cluster")
	descLease    = desc("lease_seconds", "How long what another cluster said last may still be believed; 0 when it may not.", "cluster")
	descRTT      = desc("round_trip_seconds", "Smoothed time of a question to another cluster and its answer.", "cluster")
	descPools    = desc("pools", "Pools of another cluster, by state.", "cluster", "state")
	descBytes    = desc("bytes_total", "Bytes between this replica and another cluster: questions and answers of both sides.", "cluster", "direction")
	descSessions = desc("sessions", "Replicas of another cluster that ask here.", "cluster")
	descFilter   = desc("filter_bytes", "Size of a filter of hot prefixes that is used here.", "cluster", "pool")
	descHeld     = desc("filter_blocks", "Blocks in that filter, by what its cluster says.", "cluster", "pool")
	descMade     = desc("made_filter_blocks", "Blocks in the filters that are made here for another cluster.", "cluster")
	descOmitted  = desc("made_filter_omitted", "Blocks that found no room in these filters: they are answered no there.", "cluster")
	descHot      = desc("hot_blocks", "Blocks that are remembered as hot, by pool of this cluster.", "pool")
	descRefused  = desc("refused_total", "Connections and messages that were refused, by reason.", "reason")
	descPaced    = desc("paced_total", "Messages of another cluster that came faster than they are taken: its next ones waited, or over NATS were refused.", "cluster")
	descDropped  = desc("dropped_total", "Messages that did not fit a queue; they are asked for again.")
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

// stateAt is a state as of now: a lease may have ended since the view was made.
func stateAt(s federation.State, until, now time.Time) federation.State {
	if s != federation.Refused && !now.Before(until) {
		return federation.Silent
	}
	return s
}
