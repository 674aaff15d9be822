package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
)

// metricPrefix is the prefix of all metric names.
const metricPrefix = "grapevine_cluster_"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, labels, nil)
}

// The metrics of a Node. Label values are bounded by the numbers of members, states and reasons.
var (
	descMembers    = desc("members", "Members of the group, this one included.")
	descHealthy    = desc("healthy", "1 when the group is healthy, by state.", "state")
	descSettled    = desc("settled", "1 when this replica has caught up, 0.5 when it started serving without catching up.")
	descPeerUp     = desc("peer_up", "1 when frames are exchanged in both directions.", "peer")
	descPeerRTT    = desc("peer_rtt_seconds", "Round-trip time of heartbeats.", "peer")
	descPeerClock  = desc("peer_clock_ahead_seconds", "Time by which the wall clock of a peer is ahead of this replica's, measured over heartbeats. Negative: behind.", "peer")
	descBytes      = desc("peer_bytes_total", "Bytes of frames.", "peer", "state", "direction")
	descBorder     = desc("zone_bytes_total", "Bytes of frames to and from members in another zone.", "direction")
	descRelayed    = desc("relayed_frames_total", "Frames that this replica relayed to members of its zone, counted per receiver.")
	descFrames     = desc("peer_frames_total", "Frames sent to and received from a peer, by shared state.", "peer", "state", "direction")
	descBehind     = desc("peer_behind_sources", "Sources for which a peer reports missing data.", "peer", "state")
	descDiffer     = desc("peer_digests_differ", "Sources for which a peer has different content at the same position.", "peer", "state")
	descQueueBytes = desc("queue_bytes", "Bytes waiting to be sent.", "peer")
	descDropped    = desc("queue_dropped_frames_total", "Frames dropped because a queue was full or closed.", "peer")
	descSources    = desc("sources", "Sources by completeness of this replica's knowledge.", "state", "knowledge")
	descReading    = desc("sources_reading", "Sources whose stream this replica reads.", "state")
	descUnread     = desc("sources_unread", "Sources without a known reader.", "state")
	descLag        = desc("lag_batches", "Sequence numbers by which the furthest peers are ahead, summed over sources.", "state")
	descRefused    = desc("refused_total", "Rejected frames, packets and connections.", "reason")
	descDeltas     = desc("deltas_total", "Deltas by verdict.", "from", "verdict")
	descRepairs    = desc("repairs_total", "Repairs by kind: ranges and snapshots requested, made, loaded or abandoned.", "what")
	descLost       = desc("lost_total", "Data that was dropped or could not be recovered, by kind.", "what")
	descHeld       = desc("held_bytes", "Memory held for peers and for repairs.", "what")
)

// Describe sends the descriptions of all metrics. It implements prometheus.Collector.
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descMembers, descHealthy, descSettled, descPeerUp, descPeerRTT, descPeerClock, descBytes, descFrames, descBehind,
		descDiffer, descQueueBytes, descDropped, descSources, descReading, descUnread, descLag, descRefused,
		descDeltas, descRepairs, descLost, descHeld, descBorder, descRelayed,
	} {
		ch <- d
	}
}

// Collect sends the current metrics.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	s := n.Status()
	c := collector{ch}
	c.gauge(descMembers, float64(len(s.Peers)+1))
	c.gauge(descHealthy, truth(s.Health.OK), s.Health.State)
	c.gauge(descSettled, map[string]float64{Settled.String(): 1, Degraded.String(): 0.5}[s.Phase])
	for _, p := range s.Peers {
		c.peer(&p)
	}
	c.queues(&s.Bus)
	for _, l := range s.Logs {
		c.log(&l)
	}
	c.stats(&s)
}

// DescribeBus sends the descriptions of the metrics of CollectBus.
func DescribeBus(ch chan<- *prometheus.Desc) {
	ch <- descQueueBytes
	ch <- descDropped
	ch <- descRefused
}

// CollectBus sends the metrics of a Bus that several nodes share, and whose queues and refusals are
// therefore not in the status of any of them.
func CollectBus(ch chan<- prometheus.Metric, s *BusStatus) {
	c := collector{ch}
	c.queues(s)
	for reason, v := range s.Refused {
		c.count(descRefused, v, reason)
	}
}

func (c collector) queues(s *BusStatus) {
	for _, q := range s.Queues {
		c.gauge(descQueueBytes, float64(q.Bytes), q.Peer)
		c.count(descDropped, q.Dropped, q.Peer)
	}
}

type collector struct{ ch chan<- prometheus.Metric }

func (c collector) gauge(d *prometheus.Desc, v float64, labels ...string) {
	c.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c collector) count(d *prometheus.Desc, v uint64, labels ...string) {
	c.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func (c collector) peer(p *Peer) {
	c.gauge(descPeerUp, truth(p.State == "up"), p.ID)
	c.gauge(descPeerRTT, p.RTT.Round(time.Microsecond).Seconds(), p.ID)
	if p.Clock.Known {
		c.gauge(descPeerClock, p.Clock.Ahead.Round(time.Millisecond).Seconds(), p.ID)
	}
	for _, t := range p.Traffic {
		c.count(descBytes, t.BytesIn, p.ID, t.State, "in")
		c.count(descBytes, t.BytesOut, p.ID, t.State, "out")
		c.count(descFrames, t.FramesIn, p.ID, t.State, "in")
		c.count(descFrames, t.FramesOut, p.ID, t.State, "out")
	}
	for _, l := range p.Logs {
		c.gauge(descBehind, float64(l.Behind), p.ID, l.Name)
		c.gauge(descDiffer, float64(l.Differ), p.ID, l.Name)
	}
}

func (c collector) log(l *LogState) {
	c.gauge(descSources, float64(l.Exact), l.Name, knowledge.Exact.String())
	c.gauge(descSources, float64(l.Partial), l.Name, knowledge.Partial.String())
	c.gauge(descSources, float64(l.CatchingUp), l.Name, knowledge.CatchingUp.String())
	c.gauge(descSources, float64(l.Approximate), l.Name, knowledge.Approximate.String())
	c.gauge(descSources, float64(l.Nothing), l.Name, knowledge.Unknown.String())
	c.gauge(descReading, float64(l.Reading), l.Name)
	c.gauge(descUnread, float64(l.Unread), l.Name)
	c.gauge(descLag, float64(l.Lag), l.Name)
}

func (c collector) stats(s *Status) {
	// The bus and the state machine share some reasons.
	refused := map[string]uint64{}
	for reason, v := range s.Bus.Refused {
		refused[reason] += v
	}
	for r := range group.NumRefusals {
		refused[r.String()] += s.Stats.Refused[r]
	}
	for reason, v := range refused {
		c.count(descRefused, v, reason)
	}
	for v := range s.Stats.Appended {
		c.count(descDeltas, s.Stats.Appended[v], "local", Verdict(v).String())
		c.count(descDeltas, s.Stats.Merged[v], "peer", Verdict(v).String())
	}
	c.count(descBorder, s.Stats.BorderIn, "in")
	c.count(descBorder, s.Stats.BorderOut, "out")
	c.count(descRelayed, s.Stats.Relayed)
	for what, v := range map[string]uint64{
		"relay_missed": s.Stats.RelayMissed,
		"range_asked":  s.Stats.RangesAsked, "snapshot_asked": s.Stats.SnapshotsAsked,
		"snapshot_made": s.Stats.SnapshotsMade, "snapshot_loaded": s.Stats.SnapshotsLoaded,
		"snapshot_fenced": s.Stats.SnapshotsFenced, "snapshot_unbridged": s.Stats.SnapshotsUnbridged,
		"snapshot_corrupt": s.Stats.SnapshotsCorrupt, "snapshot_failed": s.Stats.SnapshotsFailed,
		"page_served": s.Stats.PagesServed, "ask_timeout": s.Stats.AskTimeouts, "answer_late": s.Stats.LateAnswers,
	} {
		c.count(descRepairs, v, what)
	}
	for what, v := range map[string]uint64{
		"sequence_number": s.Stats.Lost, "pending_delta": s.Stats.PendingDropped, "pushed_delta": s.Stats.PushDropped,
		"hint_unsent": s.Stats.FeedDropped, "hint_missed": s.Stats.FeedMissed, "peer": s.Stats.PeersLost,
	} {
		c.count(descLost, v, what)
	}
	for what, v := range map[string]int{
		"rings": s.Memory.Rings, "pending": s.Memory.Pending, "pushes": s.Memory.Pushes,
		"snapshots": s.Memory.Snapshots, "loads": s.Memory.Loads,
	} {
		c.gauge(descHeld, float64(v), what)
	}
}
