package group

import (
	"time"
)

// Options configure a Core. Durations and limits that are zero get their default.
type Options struct {
	Self  Member
	Share Share
	// Standalone means that no other member can exist: clustering is off.
	Standalone bool
	// Wall returns the wall clock in microseconds since 1970. Members compare it to find clocks that
	// differ; nothing else depends on it. nil: this member's clock is not compared.
	Wall func() uint64
	// Relay sends broadcast changes once to each remote zone, where one member forwards them. Use
	// it for a bus with a direct path to each member. A bus that fans out messages inside a zone
	// itself does not need it.
	Relay bool
	// MeshSources is the number of sources up to which ShareAuto selects mesh (32). Above it,
	// ShareAuto selects partitioned, and mesh again below three quarters of it.
	MeshSources int

	// Heartbeat is the time between heartbeats to each peer (200 ms). Lease is the silence after
	// which a peer counts as unreachable and its gauges are dropped (800 ms). That is four
	// heartbeats, so two may be lost.
	Heartbeat, Lease time.Duration
	// DeltaDelay and GaugeDelay are how long changes are batched before they are sent (2 ms, 10
	// ms). Feeds use DeltaDelay. With more than two peers, the delay of deltas grows threefold for
	// each further peer, up to 200 ms, because every frame costs each peer about 100 bytes.
	DeltaDelay, GaugeDelay time.Duration
	// Pace is the least time between two updates of gauges and feeds (20 ms). An update after a longer
	// silence is sent after its own delay, and contains all that has changed by then.
	Pace time.Duration
	// Digest is the time between claims about changes that deltas do not carry, and between tips
	// for members that read the same source (300 ms). FullDigest is the time between claims about
	// the content of a source that changes (5 s, or twice that if nothing was lost). It is also the
	// time between full claims to members that cannot request missed frames.
	Digest, FullDigest time.Duration
	// GapDelay is how late a delta may be before it is requested again (40 ms).
	GapDelay time.Duration
	// AskTimeout is the time limit for an answer: 400 ms, or 8 round trips if that is longer, up to
	// 2 s. After three timeouts in a row another peer is asked.
	AskTimeout time.Duration
	// OrphanGrace is how long a source may go without a reachable reader before the next member in
	// rank order reads it (1 s per rank).
	OrphanGrace time.Duration
	// SettleTimeout is the time after which a member that has not settled continues as Degraded (10
	// s). LonelyTimeout is the same for a member without any peer (3 s).
	SettleTimeout, LonelyTimeout time.Duration

	// RingBytes bounds the recent deltas kept per source for other members (256 KiB; less if the
	// source's snapshot is smaller, but at least 64 KiB). RingDeltas bounds their number (1024).
	// PendingBytes bounds the deltas per source that wait for earlier ones (256 KiB, or a sixteenth
	// of a snapshot that is being loaded if that is more). It also bounds the queue of outgoing
	// deltas.
	RingBytes, RingDeltas, PendingBytes int
	// PageBytes is the size of snapshot pages and range answers (128 KiB).
	PageBytes int
	// SnapshotBytes bounds the pages of one snapshot, loaded or served (384 MiB). SnapshotCache
	// bounds all snapshots kept for other members (384 MiB; a larger one is kept alone). A member
	// that loads a snapshot holds only a few of its pages at a time.
	SnapshotBytes, SnapshotCache int
	// Loads is how many sources of a log are loaded at the same time (8).
	Loads int
	// GaugeBytes bounds one origin's keys and values of one gauge (MaxGauge, 960 KiB, enough for
	// ten thousand endpoints). FeedBytes, PageBytes and PendingBytes are capped at half a frame,
	// GaugeBytes at MaxGauge.
	GaugeBytes int
	// FeedBytes bounds the payloads queued for a feed (256 KiB).
	FeedBytes int
}

func def[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// WithDefaults returns o with zero values replaced.
func (o Options) WithDefaults() Options {
	if o.Self.Name == "" {
		o.Self.Name = o.Self.ID
	}
	if o.Wall == nil {
		o.Wall = func() uint64 { return 0 }
	}
	def(&o.MeshSources, 32)
	def(&o.Heartbeat, 200*time.Millisecond)
	def(&o.Lease, 800*time.Millisecond)
	def(&o.DeltaDelay, 2*time.Millisecond)
	def(&o.GaugeDelay, 10*time.Millisecond)
	def(&o.Pace, 20*time.Millisecond)
	def(&o.Digest, 300*time.Millisecond)
	def(&o.FullDigest, 5*time.Second)
	def(&o.GapDelay, 40*time.Millisecond)
	def(&o.AskTimeout, 400*time.Millisecond)
	def(&o.OrphanGrace, time.Second)
	def(&o.SettleTimeout, 10*time.Second)
	def(&o.LonelyTimeout, 3*time.Second)
	def(&o.RingBytes, 256<<10)
	def(&o.RingDeltas, 1024)
	def(&o.PendingBytes, 256<<10)
	def(&o.PageBytes, 128<<10)
	def(&o.SnapshotBytes, 384<<20)
	def(&o.SnapshotCache, 384<<20)
	def(&o.Loads, 8)
	def(&o.GaugeBytes, MaxGauge)
	def(&o.FeedBytes, 256<<10)
	// The content of one frame must fit in a frame.
	for _, v := range []*int{&o.PendingBytes, &o.FeedBytes, &o.PageBytes} {
		*v = min(*v, MaxFrame/2)
	}
	o.GaugeBytes = min(o.GaugeBytes, MaxGauge)
	return o
}
