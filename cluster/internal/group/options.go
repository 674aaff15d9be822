package group

import (
	"time"
)

// Options configure a Core. The zero value of every duration and limit means
// its default.
type Options struct {
	Self  Member
	Share Share
	// Alone says that no other member can exist (clustering is off).
	Alone bool
	// Relay has changes for everybody sent once to each other zone, where one member passes
	// them on. It is for a bus that has a way to each member of its own; one that spreads a
	// message behind a border itself has no need of it.
	Relay bool
	// MeshSources is the number of sources up to which ShareAuto means mesh
	// (32); it means partitioned again above, and mesh below three quarters.
	MeshSources int

	// Heartbeat is the time between heartbeats to each peer (200 ms). Lease is
	// the silence after which a peer counts as unreachable and its gauges are
	// dropped (800 ms): four heartbeats, so that two may be lost.
	Heartbeat, Lease time.Duration
	// DeltaDelay and GaugeDelay are how long changes wait for company before
	// they are sent (2 ms, 10 ms); feeds wait like deltas. With more than two peers, deltas
	// wait three times as long for each beyond two, but 200 ms at most: every frame costs each
	// peer some 100 bytes.
	DeltaDelay, GaugeDelay time.Duration
	// Digest is the time between claims of what deltas do not show, and between tips for
	// those who read a source too (300 ms); FullDigest is the time between claims of what a
	// source that moves holds, twice that if nothing of it was lost (5 s), and between claims of everything to members of
	// versions before those that ask for what they missed.
	Digest, FullDigest time.Duration
	// GapDelay is how long a missing delta may be late before it is asked for
	// (40 ms).
	GapDelay time.Duration
	// AskTimeout is how long an answer may take (400 ms, or 8 round trips if
	// that is longer, 2 s at most). After three in a row another peer is asked.
	AskTimeout time.Duration
	// OrphanGrace is how long a source may be read by nobody reachable before
	// the next in line reads it (1 s per place in the line).
	OrphanGrace time.Duration
	// SettleTimeout is when a member that has not settled goes on as Degraded
	// (10 s). LonelyTimeout is the same for one that has no peer at all (3 s).
	SettleTimeout, LonelyTimeout time.Duration

	// RingBytes bounds the recent deltas kept per source for others (256 KiB; less
	// where a snapshot of the source is smaller, but 64 KiB), RingDeltas their
	// number (1024). PendingBytes bounds deltas that wait for
	// earlier ones, per source (256 KiB; a sixteenth of a snapshot of it that is being
	// loaded, if that is more), and what waits to be sent.
	RingBytes, RingDeltas, PendingBytes int
	// PageBytes is the size of snapshot pages and range answers (128 KiB).
	PageBytes int
	// SnapshotBytes bounds the pages of one snapshot, loaded or served (384 MiB);
	// SnapshotCache the bytes of snapshots kept for askers (384 MiB; a larger one is
	// kept alone). Who loads one holds few of its pages at a time.
	SnapshotBytes, SnapshotCache int
	// Loads is the number of sources of a log loaded at the same time (8).
	Loads int
	// FeedBytes, PageBytes and PendingBytes are at most half of a frame, GaugeBytes MaxGauge.
	// GaugeBytes bounds one origin's keys and values of one gauge (MaxGauge, 960 KiB: what is
	// said of ten thousand endpoints fits).
	GaugeBytes int
	// FeedBytes bounds what waits to be sent to a feed (256 KiB).
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
	def(&o.MeshSources, 32)
	def(&o.Heartbeat, 200*time.Millisecond)
	def(&o.Lease, 800*time.Millisecond)
	def(&o.DeltaDelay, 2*time.Millisecond)
	def(&o.GaugeDelay, 10*time.Millisecond)
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
	// What is sent in one frame has to fit one.
	for _, v := range []*int{&o.PendingBytes, &o.FeedBytes, &o.PageBytes} {
		*v = min(*v, MaxFrame/2)
	}
	o.GaugeBytes = min(o.GaugeBytes, MaxGauge)
	return o
}
